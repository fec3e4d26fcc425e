/* cmd_import.c - lplan import: a Hugging Face config.json becomes a model file. */
#include <stdio.h>
#include <string.h>

#include "ir/base/cli.h"
#include "ir/base/str.h"
#include "ir/model.h"
#include "planner/import_hf.h"

/* Longest sequence that is assumed when --seq is not given. */
enum { SEQUENCE_USUAL = 4096 };

/* Model FLOPs: two per multiply-add of matrix products with weights and of attention, all pairs of
 * positions counted. Backward is twice forward, recomputation is not counted. */
static int64_t forward_flops(const Net *net, const Graph *graph)
{
    int64_t flops = 0;
    for (int i = 0; i < graph->nodes.n; i++) {
        const Node *node = &graph->nodes.at[i];
        if (node->seg != SEG_FORWARD)
            continue;
        bool weighed = false;
        for (int j = 0; j < node->ins; j++)
            weighed |= graph->values.at[node->in[j]].kind == VALUE_PARAM;
        Form form = op_info[node->op].form;
        if (form == FORM_attention || (form == FORM_gemm && weighed))
            flops += node_flops(net, node);
    }
    return flops;
}

typedef struct ClassRow {
    int count;
    int64_t params;  /* of one instance; a tied tensor counts where it occurs first */
    int64_t forward; /* FLOPs of one instance and one token */
} ClassRow;

typedef struct Summary {
    ClassRow *row;         /* per class of the net */
    int64_t params, flops; /* flops: per token, forward and backward */
    int64_t sequence;
} Summary;

static Summary summarise(Arena *arena, const Net *net, int64_t sequence)
{
    Summary sum = {.row = ARENA_ARRAY(arena, ClassRow, net->classes.n), .sequence = sequence};
    sum.params = net_param_count(net);
    for (int i = 0; i < net->chain.n; i++)
        sum.row[net->chain.at[i].class].count++;
    for (int i = 0; i < net->params.n; i++) {
        const NetParam *param = &net->params.at[i];
        const Graph *graph = net->classes.at[param->class];
        ValueId value = graph->params.at[param->param].value;
        sum.row[param->class].params += value_elements(net, &graph->values.at[value]);
    }
    for (int i = 0; i < net->classes.n; i++) {
        ClassRow *row = &sum.row[i];
        row->params /= row->count > 0 ? row->count : 1;
        row->forward = forward_flops(net, net->classes.at[i]) / sequence;
        sum.flops += 3 * row->forward * row->count;
    }
    return sum;
}

static char *summary_text(Arena *arena, const Import *import, const Net *net, const Summary *sum)
{
    Str out = str_new(arena);
    str_putf(&out, "%s  (%s)\n\n", net->name, import->family);
    str_putf(&out, "  %-18s %5s %20s %20s %18s\n", "class", "count", "parameters each",
             "parameters", "forward FLOPs");
    for (int i = 0; i < net->classes.n; i++) {
        const ClassRow *row = &sum->row[i];
        str_putf(&out, "  %-18s %5d %20s %20s %18s\n", net->classes.at[i]->name, row->count,
                 str_commas(arena, row->params), str_commas(arena, row->params * row->count),
                 str_commas(arena, row->forward * row->count));
    }
    str_putf(&out, "  %-18s %5d %20s %20s %18s\n\n", "total", net->chain.n, "",
             str_commas(arena, sum->params), str_commas(arena, sum->flops / 3));
    str_putf(&out, "  FLOPs per token, forward and backward: %s\n", str_commas(arena, sum->flops));
    str_putf(
        &out,
        "  per token of a sequence of %s; 2 per multiply-add of weights and attention, all pairs\n"
        "  of positions counted; backward is twice forward; no recomputation\n",
        str_commas(arena, sum->sequence));
    for (int i = 0; i < import->notes.n; i++)
        str_putf(&out, "  note: %s\n", import->notes.at[i]);
    return out.at;
}

static char *summary_json(Arena *arena, const Import *import, const Net *net, const Summary *sum)
{
    json_t *notes = json_array(), *classes = json_array();
    for (int i = 0; i < import->notes.n; i++)
        json_array_append_new(notes, json_string(import->notes.at[i]));
    for (int i = 0; i < net->classes.n; i++) {
        const ClassRow *row = &sum->row[i];
        json_array_append_new(classes,
                              json_pack("{s:s, s:i, s:I, s:I}", "class", net->classes.at[i]->name,
                                        "count", row->count, "params", (json_int_t)row->params,
                                        "forward_flops_per_token", (json_int_t)row->forward));
    }
    json_t *root =
        json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:o, s:o}", "name", net->name, "family",
                  import->family, "params_total", (json_int_t)sum->params, "params_active",
                  (json_int_t)sum->params, "flops_per_token", (json_int_t)sum->flops, "sequence",
                  (json_int_t)sum->sequence, "classes", classes, "notes", notes);
    char *text = json_text(arena, root);
    json_decref(root);
    return arena_printf(arena, "%s\n", text);
}

/* The model as a net, through the text that is written: what a later `lplan plan` will read. */
static Net *net_of_text(Cli *cli, const char *text, int64_t sequence, JsonDoc **ret_doc)
{
    *ret_doc = json_parse(cli->arena, cli->diag, "<imported model>", text, strlen(text));
    if (!*ret_doc)
        return NULL;
    return model_read(cli->arena, cli->diag, json_root(*ret_doc), 1, sequence, 1);
}

static bool report(Cli *cli, const Import *import, const char *text, int64_t sequence)
{
    bool to_file = !str_eq(cli->output, "-");
    JsonDoc *doc = NULL;
    Net *net = net_of_text(cli, text, sequence, &doc);
    if (!net) {
        json_doc_free(doc);
        return false;
    }
    Summary sum = summarise(cli->arena, net, sequence);
    bool written = to_file || !cli->json ? cli_write(cli, text) : true;
    if (cli->json)
        fputs(summary_json(cli->arena, import, net, &sum), stdout);
    else if (!cli->quiet)
        fputs(summary_text(cli->arena, import, net, &sum), to_file ? stdout : stderr);
    json_doc_free(doc);
    return written;
}

static bool import_file(Cli *cli, int64_t sequence)
{
    const char *path = cli->args[0];
    JsonDoc *doc = json_load(cli->arena, cli->diag, path);
    if (!doc)
        return false;
    const char *name = cli_value(cli, "name", 0);
    Import import;
    bool good =
        import_hf(cli->arena, json_root(doc), name ? name : import_name(cli->arena, path), &import);
    if (good) {
        const char *text = arena_printf(cli->arena, "%s\n", json_text(cli->arena, import.model));
        json_decref(import.model);
        if (sequence == 0)
            sequence = import.positions < SEQUENCE_USUAL ? import.positions : SEQUENCE_USUAL;
        good = report(cli, &import, text, sequence);
    }
    json_doc_free(doc);
    return good;
}

int cmd_import(int argc, char **argv)
{
    static const CliFlag flags[] = {
        {"seq", "S", "tokens per sequence for the FLOPs (default: the model's, at most 4096)",
         false},
        {"name", "NAME", "the model's name (default: the file's)", false},
    };
    static const CliSpec spec = {
        .verb = "import",
        .arguments = "CONFIG",
        .about = "a Hugging Face config.json becomes a model file (-o), with its size",
        .flags = flags,
        .flag_count = 2,
        .min_args = 1,
        .max_args = 1,
    };
    Cli *cli = cli_begin(&spec, argc, argv);
    int64_t sequence = 0;
    if (!cli->ready || !cli_int(cli, "seq", 1, INT64_C(1) << 28, &sequence))
        return cli_end(cli, CLI_USAGE);
    return cli_end(cli, import_file(cli, sequence) ? CLI_OK : CLI_INPUT);
}
