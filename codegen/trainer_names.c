/* trainer_names.c - what the parts of a trainer call things: parameters, lists of atoms, kernels,
 * events. */
#include <ctype.h>
#include <string.h>

#include "codegen/target.h"
#include "codegen/trainer.h"
#include "ir/lower/braid.h"

bool trainer_class_draws(const Trainer *t, int class)
{
    const Graph *graph = t->net->classes.at[class];
    for (int n = 0; n < graph->nodes.n; n++) {
        if (op_draws(graph->nodes.at[n].op))
            return true;
    }
    return false;
}

bool trainer_stage_draws(const Trainer *t, int stage)
{
    const StageProgram *program = &t->program->stage[stage];
    for (int i = 0; i < program->links; i++) {
        if (trainer_class_draws(t, t->net->chain.at[program->link[i].link].class))
            return true;
    }
    return false;
}

bool trainer_draws(const Trainer *t)
{
    for (int s = 0; s < t->program->stages; s++) {
        if (trainer_stage_draws(t, s))
            return true;
    }
    return false;
}

const char *trainer_count(Trainer *t, long long n, const char *one, const char *many)
{
    return arena_printf(t->arena, "%lld %s", n, n == 1 ? one : many);
}

const char *trainer_upper(Trainer *t, const char *text)
{
    char *copy = arena_strdup(t->arena, text);
    for (char *c = copy; *c; c++)
        *c = (char)toupper((unsigned char)*c);
    return copy;
}

const char *trainer_camel(Trainer *t, const char *text)
{
    Str out = str_new(t->arena);
    bool up = true;
    for (const char *c = text; *c; c++) {
        if (*c != '_')
            str_putc(&out, up ? (char)toupper((unsigned char)*c) : *c);
        up = *c == '_';
    }
    return out.at;
}

const char *trainer_comment(Trainer *t, const char *text)
{
    return emit_clean(t->arena, text, CLEAN_SENTENCE);
}

const char *trainer_param(Trainer *t, int class, int param)
{
    const Graph *graph = t->program->body[class]->graph;
    const char *name = graph->values.at[graph->params.at[param].value].name;
    int twins = 0;
    for (int p = 0; p < param; p++) {
        const char *other = graph->values.at[graph->params.at[p].value].name;
        twins += str_eq(emit_ident(t->arena, other), emit_ident(t->arena, name));
    }
    const char *text =
        arena_printf(t->arena, "%s_%s", t->class_name[class], emit_ident(t->arena, name));
    return trainer_upper(t, twins ? arena_printf(t->arena, "%s_%d", text, twins + 1) : text);
}

const char *dtype_constant(DType dtype)
{
    static const char *const text[DT_COUNT] = {[DT_F32] = "LP_F32",
                                               [DT_F64] = "LP_F64",
                                               [DT_BF16] = "LP_BF16",
                                               [DT_F16] = "LP_F16",
                                               [DT_I32] = "LP_I32"};
    return text[dtype];
}

const char *shape_comment(Trainer *t, const Body *body, int id)
{
    const Copy *copy = &body->copies.at[id];
    const Value *value = &body->graph->values.at[copy->value];
    Str dims = str_new(t->arena);
    if (value->axes == 0)
        return "scalar";
    for (int a = 0; a < value->axes; a++)
        str_putf(&dims, "%s%s", a ? " " : "",
                 emit_clean(t->arena, body->net->dims.at[value->dim[a]].name, CLEAN_IDENT));
    for (int a = 0; a < value->axes; a++)
        str_putf(&dims, "%s%lld", a ? " x " : ": ", (long long)copy->local[a]);
    return dims.at;
}

AtomList atoms_as_list(AtomSet atoms)
{
    AtomList list = {0};
    for (int a = MAX_ATOMS - 1; a >= 0; a--) {
        if (atoms >> a & 1)
            list.at[list.n++] = (int8_t)a;
    }
    return list;
}

const char *trainer_list(Trainer *t, const AtomList *list, bool comm)
{
    for (int i = 0; i < t->lists.n; i++) {
        ListName *known = &t->lists.at[i];
        if (known->list.n == list->n && memcmp(known->list.at, list->at, (size_t)list->n) == 0) {
            known->comm = known->comm || comm;
            return known->name;
        }
    }
    Str name = str_new(t->arena);
    const char *before = "";
    for (int i = 0; i < list->n; i++) {
        const char *role = role_text[t->plan->mesh.atom[list->at[i]].role];
        if (!str_eq(role, before))
            str_putf(&name, "_%s", role);
        before = role;
    }
    const char *wanted =
        trainer_upper(t, arena_printf(t->arena, "over%s", list->n ? name.at : "_none"));
    wanted = names_take(&t->globals, wanted);
    vec_push(t->arena, &t->lists) = (ListName){*list, wanted, comm};
    return wanted;
}

const char *trainer_origin(Trainer *t, const AtomList *list, int64_t local)
{
    if (list->n == 0)
        return "0";
    return arena_printf(t->arena, "s->index[%s] * %lldL", trainer_list(t, list, false),
                        (long long)local);
}

const char *trainer_kernel(Trainer *t, const RowProgram *program)
{
    const char *text = rows_print(t->arena, program, &target_host, program->name);
    for (int i = 0; i < t->kernels.n; i++) {
        if (str_eq(t->kernels.at[i].text, text))
            return t->kernels.at[i].unique;
    }
    const char *unique = names_take(&t->globals, program->name);
    vec_push(t->arena, &t->kernels) = (KernelText){program->name, text, unique, program};
    return unique;
}

const char *trainer_event(Trainer *t, int class, int which, int inst)
{
    for (int i = 0; i < t->events.n; i++) {
        const EventName *known = &t->events.at[i];
        if (known->class == class && known->which == which && known->inst == inst)
            return known->name;
    }
    const Body *body = t->program->body[class];
    const Inst *at = &body_list(body, which)->at[inst];
    const char *name =
        arena_printf(t->arena, "%s_%s", t->class_name[class], body->copies.at[at->out[0]].name);
    name = names_take(&t->globals, emit_ident(t->arena, name));
    vec_push(t->arena, &t->events) = (EventName){class, which, inst, name};
    return name;
}

bool trainer_is_matrix(const Trainer *t, int class)
{
    return class >= t->net->classes.n;
}

const char *trainer_part(const Trainer *t, int which)
{
    return part_name[list_part(which, t->split)];
}

const char *trainer_chunk(Trainer *t, int stage, int chunk)
{
    const StageProgram *program = &t->program->stage[stage];
    return program->chunks == 1
               ? arena_printf(t->arena, "stage%d", stage)
               : arena_printf(t->arena, "stage%d_chunk%d", stage, program->chunk[chunk].index);
}
