/* cmd_import.c - lplan import: a Hugging Face config.json becomes a model file. */
#include <stdio.h>
#include <string.h>

#include "ir/base/cli.h"
#include "ir/base/str.h"
#include "ir/model.h"
#include "planner/import_count.h"
#include "planner/import_hf.h"

/* Longest sequence that is assumed when --seq is not given. */
enum { SEQUENCE_USUAL = 4096 };

static void put_row(Str *out, const char *name, int count, const char *params, const char *active,
                    const char *forward)
{
    str_putf(out, "  %-24s %6d %19s %19s %19s\n", name, count, params, active, forward);
}

static char *summary_text(Arena *arena, const Import *import, const Net *net, const Count *count,
                          int64_t sequence)
{
    Str out = str_new(arena);
    str_putf(&out, "%s  (%s)\n\n", net->name, import->family);
    str_putf(&out, "  parameters        %20s\n", str_commas(arena, count->params));
    str_putf(&out, "  active per token  %20s%s\n\n", str_commas(arena, count->active),
             count->active < count->params ? "  (k of e experts counted as k/e)" : "");
    str_putf(&out, "  %-24s %6s %19s %19s %19s\n", "block", "count", "parameters each",
             "active each", "forward FLOPs each");
    for (int i = 0; i < net->classes.n; i++) {
        const CountRow *row = &count->row[i];
        put_row(&out, net->classes.at[i]->name, row->links, str_commas(arena, row->params),
                str_commas(arena, row->active), str_commas(arena, row->forward));
    }
    put_row(&out, "all", net->chain.n, str_commas(arena, count->params),
            str_commas(arena, count->active), str_commas(arena, count->forward));
    str_putf(&out, "\n  FLOPs per token   %20s forward\n", str_commas(arena, count->forward));
    str_putf(&out, "  %17s %20s backward\n", "", str_commas(arena, count->backward));
    str_putf(&out, "  %17s %20s forward and backward\n", "",
             str_commas(arena, count->forward + count->backward));
    str_putf(
        &out,
        "  per token of a sequence of %s; 2 per multiply-add of weights and attention;\n"
        "  attention in full: all pairs of positions, causal not halved, windows not taken off;\n"
        "  backward is twice forward; no recomputation\n",
        str_commas(arena, sequence));
    for (int i = 0; i < import->notes.n; i++)
        str_putf(&out, "  note: %s\n", import->notes.at[i]);
    return out.at;
}

static char *summary_json(Arena *arena, const Import *import, const Net *net, const Count *count,
                          int64_t sequence)
{
    json_t *notes = json_array(), *classes = json_array();
    for (int i = 0; i < import->notes.n; i++)
        json_array_append_new(notes, json_string(import->notes.at[i]));
    for (int i = 0; i < net->classes.n; i++) {
        const CountRow *row = &count->row[i];
        json_array_append_new(classes, json_pack("{s:s, s:i, s:I, s:I, s:I}", "class",
                                                 net->classes.at[i]->name, "count", row->links,
                                                 "params", (json_int_t)row->params, "active_params",
                                                 (json_int_t)row->active, "forward_flops_per_token",
                                                 (json_int_t)row->forward));
    }
    json_t *root = json_pack(
        "{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:o, s:o}", "name", net->name, "family",
        import->family, "params_total", (json_int_t)count->params, "params_active",
        (json_int_t)count->active, "flops_per_token",
        (json_int_t)(count->forward + count->backward), "forward_flops_per_token",
        (json_int_t)count->forward, "backward_flops_per_token", (json_int_t)count->backward,
        "sequence", (json_int_t)sequence, "causal_halved", 0, "classes", classes, "notes", notes);
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
    Count count = net_count(cli->arena, net);
    bool written = to_file || !cli->json ? cli_write(cli, text) : true;
    if (cli->json)
        fputs(summary_json(cli->arena, import, net, &count, sequence), stdout);
    else if (!cli->quiet)
        fputs(summary_text(cli->arena, import, net, &count, sequence), to_file ? stdout : stderr);
    json_doc_free(doc);
    return written;
}

static bool import_file(Cli *cli, int64_t sequence, double further)
{
    const char *path = cli->args[0];
    JsonDoc *doc = json_load_foreign(cli->arena, cli->diag, path);
    if (!doc)
        return false;
    const char *name = cli_value(cli, "name", 0);
    Import import;
    const ImportOptions options = {
        .dropout = cli_has(cli, "dropout"), .balance = cli_has(cli, "balance"), .further = further};
    bool good = import_hf(cli->arena, json_root(doc), name ? name : import_name(cli->arena, path),
                          &options, &import);
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
        {"dropout", NULL, "train with the config's dropout (default: without)", false},
        {"balance", NULL, "balance experts with the config's coefficient", false},
        {"mtp", "FACTOR", "train the layer for the token after the next, its loss times this",
         false},
    };
    static const CliSpec spec = {
        .verb = "import",
        .arguments = "CONFIG",
        .about = "a Hugging Face config.json becomes a model file (-o), with its size",
        .flags = flags,
        .flag_count = 5,
        .min_args = 1,
        .max_args = 1,
    };
    Cli *cli = cli_begin(&spec, argc, argv);
    int64_t sequence = 0;
    double further = 0;
    if (!cli->ready || !cli_num(cli, "mtp", 0, 1e3, &further) ||
        !cli_int(cli, "seq", 1, INT64_C(1) << 28, &sequence))
        return cli_end(cli, CLI_USAGE);
    return cli_end(cli, import_file(cli, sequence, further) ? CLI_OK : CLI_INPUT);
}
