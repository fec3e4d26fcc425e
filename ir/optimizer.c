/* optimizer.c - builds the optimizer's graph. */
#include "ir/optimizer.h"

Optimizer optimizer_make(Arena *arena, const AdamW *adamw)
{
    Net *net = ARENA_NEW(arena, Net);
    net->arena = arena;
    net->name = "optimizer";
    DimId flat = net_add_dim(net, "e", DIM_OTHER, 1);
    Graph *graph = net_add_class(net, "optimizer");
    static const char *const tensor[4] = {"weight", "moment1", "moment2", "gradient"};
    static const char *const scalar[4] = {"coefficient", "lr", "step", "norm2"};
    ValueId in[8];
    for (int i = 0; i < 4; i++)
        in[i] = graph_value(graph, VALUE_INPUT, tensor[i], 1, &flat);
    for (int i = 0; i < 4; i++)
        in[4 + i] = graph_value(graph, VALUE_INPUT, scalar[i], 0, NULL);
    Attrs clip = {0}, step = {0};
    clip.clip.max_norm = adamw->clip;
    step.adamw.beta1 = adamw->beta1;
    step.adamw.beta2 = adamw->beta2;
    step.adamw.eps = adamw->eps;
    step.adamw.decay = adamw->decay;
    Optimizer optimizer = {.graph = graph};
    optimizer.norm2 = graph_node(graph, OP_SUMSQ, "norm2_share", "e->", NULL, &in[3], 1);
    optimizer.clip = graph_node(graph, OP_CLIP, "clip", "->", &clip, &in[7], 1);
    optimizer.sign =
        graph_node(graph, OP_SIGN, "sign", "e,e->e", NULL, (ValueId[]){in[0], in[3]}, 2);
    optimizer.step = graph_node(graph, OP_ADAMW, "adamw", "e,e,e,e,,,->e,e,e", &step, in, 7);
    return optimizer;
}
