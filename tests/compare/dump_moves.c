/* dump_moves.c - a model and the choices of another planner in, the moves that our lowering derives
 * out.
 *
 *     dump_moves MODEL.json BATCH SEQUENCE [SCRIPT]
 *
 * Without a script: the graph, a line a link, value, parameter and node. With one: lowers it and
 * lists every move of coordinate 0 of each stage in one optimizer step. Lines of a script:
 *
 *     mesh tp 2, dp 2            atoms, a0 first
 *     micros 3                   micro-batches of BATCH sequences
 *     cut 2                      a stage begins at this link
 *     state a1                   an atom over which the optimizer's state is cut
 *     boundary {s:a0}
 *     home CLASS PARAM {f:a0}
 *     choose CLASS NODE f R      as tests/ir/lower/handmade.h reads it
 *
 * What is kept for backward is what the first reader there needs, or a copy of which the others
 * need free views. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/lower/walk.h"
#include "ir/model.h"
#include "tests/ir/lower/handmade.h"

/* ---- the graph ---- */

static void put_graph(const Net *net)
{
    for (int i = 0; i < net->chain.n; i++)
        printf("link %d %s %d\n", i, net->classes.at[net->chain.at[i].class]->name,
               net->chain.at[i].index);
    for (int c = 0; c < net->classes.n; c++) {
        const Graph *graph = net->classes.at[c];
        const struct {
            const char *what;
            ValueId id;
        } ends[] = {{"in", graph->chain_in},
                    {"out", graph->chain_out},
                    {"grad_in", graph->grad_in},
                    {"grad_out", graph->grad_out},
                    {"loss", graph->loss}};
        for (int e = 0; e < 5; e++)
            if (ends[e].id != NONE)
                printf("end %s %s %s\n", graph->name, ends[e].what,
                       graph->values.at[ends[e].id].name);
        for (int p = 0; p < graph->params.n; p++)
            printf("param %s %s %s\n", graph->name, graph->params.at[p].name,
                   graph->values.at[graph->params.at[p].value].name);
        for (int n = 0; n < graph->nodes.n; n++) {
            const Node *node = &graph->nodes.at[n];
            printf("node %s %s %s %c", graph->name, node->name, op_info[node->op].text,
                   node->seg == SEG_FORWARD ? 'F' : 'B');
            for (int k = 0; k < node->outs; k++)
                printf(" %s", graph->values.at[node->out[k]].name);
            printf(" =");
            for (int k = 0; k < node->ins; k++)
                printf(" %s", graph->values.at[node->in[k]].name);
            printf("\n");
        }
    }
}

/* ---- the script ---- */

typedef struct Script {
    Arena *arena;
    const Net *net;
    Plan *plan;
} Script;

static int class_of(const Net *net, const char *name)
{
    for (int c = 0; c < net->classes.n; c++)
        if (strcmp(net->classes.at[c]->name, name) == 0)
            return c;
    BUG("no class %s", name);
}

static void read_mesh(const char *text, Mesh *ret)
{
    char role[8];
    int extent, used;
    for (; sscanf(text, " %7s %d%n", role, &extent, &used) == 2;
         text += used + (text[used] == ',')) {
        int r = 0;
        while (strcmp(role_text[r], role) != 0)
            CHECK(++r < ROLE_COUNT);
        ret->atom[ret->n++] = (Atom){extent, (Role)r, 0};
    }
}

static void read_boundary(Script *script, const char *text)
{
    for (int c = 0; c < script->net->classes.n; c++) {
        const Graph *graph = script->net->classes.at[c];
        ValueId id = graph->chain_in != NONE ? graph->chain_in : graph->chain_out;
        Placement place;
        if (!place_parse(script->net, &graph->values.at[id], text, &place))
            BUG("%s is no placement of the chain", text);
        script->plan->class[c].boundary_in = script->plan->class[c].boundary_out = place;
    }
}

/* CLASS NAME REST */
static void read_class_line(Script *script, char *text, bool home)
{
    char *name = strchr(text, ' '), *rest = name ? strchr(name + 1, ' ') : NULL;
    CHECK(rest != NULL);
    *name++ = '\0';
    *rest++ = '\0';
    int c = class_of(script->net, text);
    if (home)
        handmade_home(&script->plan->class[c], script -> net, script -> net -> classes.at[c], name,
                      rest);
    else
        handmade_choose(&script->plan->class[c], script -> net -> classes.at[c], name, rest);
}

static void read_line(Script *script, char *line)
{
    char *rest = strchr(line, ' ');
    Plan *plan = script->plan;
    CHECK(rest != NULL);
    *rest++ = '\0';
    if (strcmp(line, "cut") == 0) {
        plan->first_link[plan->stages++] = atoi(rest);
        plan->first_link[plan->stages] = script->net->chain.n;
        plan_chunk_per_stage(script->arena, plan);
        plan->ranks = plan->stages * mesh_ranks(&plan->mesh);
    } else if (strcmp(line, "state") == 0) {
        plan->state_atoms |= (AtomSet)(1u << atoi(rest + 1));
    } else if (strcmp(line, "boundary") == 0) {
        read_boundary(script, rest);
    } else if (strcmp(line, "home") == 0 || strcmp(line, "choose") == 0) {
        read_class_line(script, rest, line[0] == 'h');
    } else {
        BUG("unknown line %s %s", line, rest);
    }
}

static Plan *read_script(Arena *arena, const Net *net, char *text)
{
    Script script = {.arena = arena, .net = net};
    Mesh mesh = {0};
    int micros = 1;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        if (strncmp(line, "mesh ", 5) == 0) {
            read_mesh(line + 5, &mesh);
            continue;
        }
        if (strncmp(line, "micros ", 7) == 0) {
            micros = atoi(line + 7);
            continue;
        }
        if (!script.plan) {
            script.plan = handmade_plan(arena, net, &mesh, micros);
            script.plan->first_link = ARENA_ARRAY(arena, int, net->chain.n + 1);
            script.plan->first_link[1] = net->chain.n;
            plan_chunk_per_stage(arena, script.plan);
        }
        read_line(&script, line);
    }
    CHECK(script.plan != NULL);
    return script.plan;
}

/* ---- what is kept ---- */

static void keep_as_read(ClassPlan *plan, const Net *net, const Graph *graph, const Mesh *mesh)
{
    for (int v = 0; v < graph->values.n; v++) {
        const Value *value = &graph->values.at[v];
        if (value->kind != VALUE_NODE || graph->nodes.at[value->made].seg != SEG_FORWARD)
            continue;
        bool any = false;
        for (int n = 0; n < graph->nodes.n; n++) {
            const Node *node = &graph->nodes.at[n];
            Placement in[MAX_IN], out[MAX_OUT];
            if (node->seg != SEG_BACKWARD)
                continue;
            CHECK(place_node(mesh, net, graph, node, &plan->choice[n], in, out));
            for (int k = 0; k < node->ins; k++)
                if (node->in[k] == v && (!any || place_is_view(&in[k], &plan->saved[v]))) {
                    plan->saved[v] = in[k];
                    any = true;
                }
        }
    }
}

/* ---- the moves ---- */

static void put_atoms(AtomSet atoms)
{
    const char *gap = " ";
    for (int a = 0; a < MAX_ATOMS; a++)
        if (atoms >> a & 1) {
            printf("%sa%d", gap, a);
            gap = ".";
        }
    printf(atoms ? "" : " -");
}

static void put_move(const Program *program, const Step *step)
{
    const Move *move = step->move;
    bool bucket = step->bucket != NONE;
    int64_t elements = bucket ? step->elements : step->operand[0].copy->elements;
    const Entry *entry = &program->stage[step->stage].table.at[step->entry];
    char seg = bucket ? 'S' : entry->part == PART_F ? 'F' : 'B';
    printf("move %d %c %s", step->stage, seg, move_text[move->kind]);
    put_atoms(list_set(&move->atoms));
    printf(" %s %lld %s\n", monoid_text[move->monoid],
           (long long)wire_bytes(&program->plan->mesh, move, elements, 8),
           bucket ? "bucket" : step->body->graph->values.at[step->operand[0].copy->value].name);
}

static void put_groups(const Program *program, int s)
{
    const StageProgram *stage = &program->stage[s];
    for (int g = 0; g < stage->groups.n; g++) {
        const Group *group = &stage->groups.at[g];
        int64_t elements = 0;
        for (int k = 0; k < group->members.n; k++)
            elements += group->members.at[k].elements;
        const Path *path[2] = {&group->reduce, &group->gather};
        for (int i = 0; i < 2; i++) {
            int64_t at[2] = {elements, group->elements};
            if (i == 1)
                for (int k = 0; k < 2; k++)
                    at[k] /= list_extent(&program->plan->mesh, &group->share);
            for (int m = 0; m < path[i]->n; m++) {
                const Move *move = &path[i]->move[m];
                int n = list_extent(&program->plan->mesh, &move->atoms);
                printf("group %d %d %s", s, g, move_text[move->kind]);
                put_atoms(list_set(&move->atoms));
                for (int k = 0; k < 2; k++) {
                    printf(" %lld", (long long)wire_bytes(&program->plan->mesh, move, at[k], 8));
                    if (move->kind == MOVE_REDUCE_SCATTER || move->kind == MOVE_SLICE)
                        at[k] /= n;
                    else if (move->kind == MOVE_ALL_GATHER)
                        at[k] *= n;
                }
                printf("\n");
            }
        }
    }
}

static void put_moves(const Program *program)
{
    for (int s = 0; s < program->stages; s++) {
        Arena *scratch = arena_new("walk");
        Walk *walk = walk_begin(scratch, program, s, 0, 1);
        put_groups(program, s);
        for (const Step *step; (step = walk_next(walk)) != NULL;) {
            if (step->move)
                put_move(program, step);
            else if (step->kind == STEP_SEND)
                printf("move %d %c send pp none %lld %s\n", s,
                       step->message == MSG_GRADIENT ? 'B' : 'F', (long long)step->operand[0].bytes,
                       step->body->graph->values.at[step->operand[0].copy->value].name);
            else if (step->kind == STEP_TIED)
                printf("move %d S tied pp sum %lld bucket\n", s, (long long)step->operand[0].bytes);
            else if (step->kind == STEP_WORLD)
                printf("world %d %lld\n", s, (long long)step->elements);
        }
        arena_free(scratch);
    }
    for (int c = 0; c < program->net->classes.n; c++) {
        const Body *body = program->body[c];
        if (body->losses == 0)
            continue;
        printf("loss");
        put_atoms(body->copies.at[body->loss[0]].place.partial);
        printf("\n");
    }
}

int main(int argc, char **argv)
{
    Arena *arena = arena_new("dump");
    Diag *diag = diag_new(arena);
    if (argc < 4)
        return 2;
    Net *net = model_load(arena, diag, argv[1], atoi(argv[2]), atoi(argv[3]), 1, NULL);
    if (!net) {
        diag_print(diag, stderr, false);
        return 1;
    }
    if (argc == 4) {
        put_graph(net);
        return 0;
    }
    char *text = file_read(arena, argv[4], NULL);
    CHECK(text != NULL);
    Plan *plan = read_script(arena, net, text);
    for (int c = 0; c < net->classes.n; c++) {
        handmade_keep(&plan->class[c], net, net -> classes.at[c], &plan->mesh);
        keep_as_read(&plan->class[c], net, net -> classes.at[c], &plan->mesh);
    }
    if (!plan_verify(plan, net, diag)) {
        diag_print(diag, stderr, false);
        return 1;
    }
    const char *what = "";
    double error = handmade_error(arena, plan, net, 7, &what);
    printf("error %.3g %s\n", error, what);
    MovePrice price = path_plain_price(8);
    put_moves(program_build(arena, plan, net, &price, NULL));
    arena_free(arena);
    return 0;
}
