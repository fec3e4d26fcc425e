/* image_chain.c - which links of a plan's chain its image keeps. */
#include "ir/lower/image_chain.h"

#include "ir/lower/spill.h"

#include <string.h>

typedef struct Choosing {
    const Plan *plan;
    const Net *net;
    bool *taken; /* per link of the whole chain */
} Choosing;

/* Of the image's chunk: links [begin, end) of the whole chain. The first and the last chunk stand
 * for themselves, those between share the others. */
static void chunk_range(const Plan *plan, int chunks, int chunk, int *ret_begin, int *ret_end)
{
    int last = plan->chunks - 1, inner = chunks - 2;
    int from = chunk == 0 ? 0 : chunk == chunks - 1 ? last : 1 + (chunk - 1) * (last - 1) / inner;
    int to = chunk == 0 ? 1 : chunk == chunks - 1 ? last + 1 : 1 + chunk * (last - 1) / inner;
    *ret_begin = plan->first_link[from];
    *ret_end = plan->first_link[to];
}

/* Its links hand on what they take as it lies. */
static bool keeps_placement(const Plan *plan, int class)
{
    return place_equal(&plan->class[class].boundary_in, &plan->class[class].boundary_out);
}

/* What its links save has to leave: more of them than have a place on the device. */
static bool leaves(const Plan *plan, int class)
{
    Homes homes = plan_homes(plan, class);
    return home_memory(plan->memory, &homes, KEPT_SAVED) != MEMORY_HBM;
}

/* Another instance needs names of its own, and must fit behind the one before. */
static bool is_repeatable(const Plan *plan, const Net *net, int class)
{
    const Graph *graph = net->classes.at[class];
    if (!keeps_placement(plan, class) || graph->chain_in == NONE || graph->chain_out == NONE)
        return false;
    for (int p = 0; p < graph->params.n; p++)
        if (!strstr(graph->params.at[p].name, "{i}"))
            return false;
    const Value *in = &graph->values.at[graph->chain_in],
                *out = &graph->values.at[graph->chain_out];
    return in->axes == out->axes && memcmp(in->dim, out->dim, sizeof in->dim) == 0;
}

static bool is_uneven(const Plan *plan)
{
    const int *first = plan->first_link;
    for (int c = 1; c + 1 < plan->chunks; c++)
        if (first[c + 1] - first[c] != first[2] - first[1])
            return true;
    return plan->chunks == 2;
}

static bool has_taken_twin(const Choosing *c, int link)
{
    const Link *mine = &c->net->chain.at[link];
    for (int i = 0; i < c->net->chain.n; i++)
        if (i != link && c->taken[i] && c->net->chain.at[i].class == mine->class &&
            c->net->chain.at[i].index == mine->index)
            return true;
    return false;
}

/* Takes up to `most` links of the class in a range: the first, then twins of taken ones, then the
 * next; all where they change the placement, for their neighbours rely on it. Returns how many. */
static int take_class(Choosing *c, int class, int begin, int end, int most)
{
    int n = 0;
    bool inner =
        c->net->classes.at[class]->chain_in != NONE && c->net->classes.at[class]->chain_out != NONE;
    if (inner && !keeps_placement(c->plan, class))
        most = end - begin;
    for (int round = 0; round < 3; round++)
        for (int i = begin; i < end && n < (round == 0 ? 1 : most); i++) {
            if (c->net->chain.at[i].class != class || c->taken[i] ||
                (round == 1 && !has_taken_twin(c, i)))
                continue;
            c->taken[i] = true;
            n++;
        }
    return n;
}

ImageChain image_chain(Arena *arena, const Plan *plan, const Net *net, int chunks)
{
    Choosing c = {plan, net, ARENA_ARRAY(arena, bool, net->chain.n)};
    ImageChain image = {.first_link = ARENA_ARRAY(arena, int, chunks + 1)};
    int *lacking = ARENA_ARRAY(arena, int, net->classes.n), fresh = 0;
    for (int i = 0; i < net->chain.n; i++)
        fresh = net->chain.at[i].index >= fresh ? net->chain.at[i].index + 1 : fresh;
    /* one layer of a kind less where there are many chunks */
    int usual = chunks > 3 ? 1 : 2;
    for (int s = 0; s < chunks; s++) {
        int begin, end;
        chunk_range(plan, chunks, s, &begin, &end);
        for (int class = 0; class < net->classes.n; class ++) {
            bool again = is_repeatable(plan, net, class);
            int most = (leaves(plan, class) && chunks <= 3 ? SPILL_STAYS + 1 : usual) +
                       (again && s == 0 && is_uneven(plan));
            int n = take_class(&c, class, begin, end, most);
            lacking[class] = n > 0 && again ? most - n : 0;
        }
        for (int i = begin; i < end; i++) {
            if (!c.taken[i])
                continue;
            const Link *link = &net->chain.at[i];
            vec_push(arena, &image.links) = (ImageLink){i, link->index};
            for (; lacking[link->class] > 0; lacking[link->class]--)
                vec_push(arena, &image.links) = (ImageLink){i, fresh++};
        }
        image.first_link[s + 1] = image.links.n;
    }
    return image;
}

static int64_t member(const json_t *object, const char *key, int64_t otherwise)
{
    const json_t *value = json_object_get(object, key);
    return !value || json_is_null(value) ? otherwise : (int64_t)json_number_value(value);
}

static json_t *link_json(const json_t *entry, int64_t instance, int index)
{
    json_t *link = json_object(), *each = json_object_get(entry, "each");
    json_object_set(link, "block", json_object_get(entry, "block"));
    json_object_set_new(link, "first", json_integer(index));
    if (each && !json_is_null(each)) {
        json_t *list = json_array();
        json_array_append_new(list, json_deep_copy(json_array_get(each, (size_t)instance)));
        json_object_set_new(link, "each", list);
    }
    return link;
}

json_t *image_chain_json(const json_t *chain, const ImageChain *image)
{
    json_t *list = json_array();
    for (int i = 0; i < image->links.n; i++) {
        const ImageLink *link = &image->links.at[i];
        int64_t before = 0;
        for (size_t e = 0; e < json_array_size(chain); e++) {
            const json_t *entry = json_array_get(chain, e);
            int64_t repeat = member(entry, "repeat", 1);
            if (link->of < before + repeat) {
                json_array_append_new(list, link_json(entry, link->of - before, link->index));
                break;
            }
            before += repeat;
        }
    }
    return list;
}
