/* models.c - tiny models of the table of bugs: those of tiny_models.h, with dims that divide and
 * the one thing changed that a row is about. */
#include <string.h>

#include "tests/bugs/bug.h"
#include "tests/check.h"
#include "tests/ir/tiny_models.h"

const char *model_edit(Arena *arena, const char *text, const char *find, const char *with)
{
    const char *at = strstr(text, find);
    if (!at)
        BUG("the model has no %s", find);
    return arena_printf(arena, "%.*s%s%s", (int)(at - text), text, with, at + strlen(find));
}

static const char *with_dims(Arena *arena, const char *text, const char *dims)
{
    const char *at = strstr(text, "\"dims\":{"), *end = strchr(at, '}');
    return arena_printf(arena, "%.*s\"dims\":{%s%s", (int)(at - text), text, dims, end);
}

static const char *with_layers(Arena *arena, const char *text, int layers)
{
    return model_edit(arena, text, "\"repeat\":2", arena_printf(arena, "\"repeat\":%d", layers));
}

const char *model_llama(Arena *arena)
{
    return with_dims(arena, tiny_llama, "\"h\":8,\"f\":8,\"v\":11,\"g\":2,\"r\":2,\"d\":4");
}

const char *model_llama4(Arena *arena)
{
    return with_layers(arena, model_llama(arena), 4);
}

const char *model_llama8(Arena *arena)
{
    return with_layers(arena, model_llama(arena), 8);
}

const char *model_further(Arena *arena)
{
    return with_dims(arena, tiny_further,
                     "\"h\":8,\"f\":8,\"v\":11,\"g\":2,\"r\":2,\"d\":4,\"hh\":16,\"hhh\":24");
}

const char *model_tied(Arena *arena)
{
    return model_edit(arena, model_llama(arena), "lm_head.weight", "model.embed_tokens.weight");
}

const char *model_tied4(Arena *arena)
{
    return with_layers(arena, model_tied(arena), 4);
}

const char *model_mqa(Arena *arena)
{
    return with_dims(arena, tiny_llama, "\"h\":8,\"f\":8,\"v\":11,\"g\":1,\"r\":4,\"d\":4");
}

const char *model_smooth(Arena *arena)
{
    return model_edit(arena, model_llama(arena), "\"op\":\"cross_entropy\"",
                      "\"op\":\"cross_entropy\",\"smoothing\":0.1");
}

const char *model_gpt2(Arena *arena)
{
    return with_dims(arena, tiny_gpt2, "\"h\":8,\"f\":8,\"v\":11,\"p\":24,\"c\":3,\"g\":4,\"d\":2");
}

const char *model_everything(Arena *arena)
{
    (void)arena;
    return tiny_everything;
}

static const char router_layer[] =
    "{\"op\":\"linear\",\"in\":\"n2\",\"out\":\"logits\",\"to\":[\"e\"],"
    "\"weight\":\"layers.{i}.router.weight\"},\n"
    "{\"op\":\"router\",\"in\":\"logits\",\"out\":[\"choice\",\"share\"],\"k\":\"k\","
    "\"score\":\"softmax\",\"renormalise\":true,\"z\":0.01,\"balance\":0.05,"
    "\"balance_over\":\"sequence\"},\n"
    "{\"op\":\"expert_linear\",\"in\":\"n2\",\"choice\":\"choice\",\"out\":\"gate\","
    "\"experts\":\"e\",\"to\":[\"f\"],\"weight\":\"layers.{i}.experts.{e}.w1\"},\n"
    "{\"op\":\"expert_linear\",\"in\":\"n2\",\"choice\":\"choice\",\"out\":\"up\","
    "\"experts\":\"e\",\"to\":[\"f\"],\"weight\":\"layers.{i}.experts.{e}.w3\"},\n"
    "{\"op\":\"act\",\"kind\":\"silu\",\"in\":\"gate\",\"out\":\"s1\"},\n"
    "{\"op\":\"mul\",\"in\":[\"s1\",\"up\"],\"out\":\"m\"},\n"
    "{\"op\":\"expert_linear\",\"in\":\"m\",\"choice\":\"choice\",\"out\":\"each\","
    "\"experts\":\"e\",\"to\":[\"h\"],\"weight\":\"layers.{i}.experts.{e}.w2\"},\n"
    "{\"op\":\"combine\",\"in\":[\"each\",\"share\"],\"out\":\"down\"},\n";

const char *model_moe(Arena *arena)
{
    const char *text = with_dims(arena, tiny_llama,
                                 "\"h\":8,\"f\":4,\"v\":11,\"g\":2,\"r\":2,\"d\":4,"
                                 "\"e\":4,\"k\":2");
    const char *from = strstr(text, "   {\"op\":\"linear\",\"in\":\"n2\",\"out\":\"gate\"");
    const char *to = strstr(text, "   {\"op\":\"add\",\"in\":[\"x1\",\"down\"]");
    return arena_printf(arena, "%.*s%s%s", (int)(from - text), text, router_layer, to);
}

const char *model_moe_batch(Arena *arena)
{
    return model_edit(arena, model_moe(arena), "\"balance_over\":\"sequence\"",
                      "\"balance_over\":\"batch\"");
}

const char *model_moe_step(Arena *arena)
{
    return model_edit(arena, model_moe(arena), "\"balance_over\":\"sequence\"",
                      "\"balance_over\":\"step\"");
}

const char *model_moe_half(Arena *arena)
{
    return model_edit(arena, model_moe(arena), "\"balance\":0.05", "\"balance\":0.025");
}

const char *model_moe_z(Arena *arena)
{
    return model_edit(arena, model_moe(arena), "\"balance\":0.05,\"balance_over\":\"sequence\"",
                      "\"scale\":1");
}

const char *model_moe_biased(Arena *arena)
{
    return model_edit(arena, model_moe_z(arena), "\"scale\":1",
                      "\"bias\":\"layers.{i}.bias\",\"bias_rate\":0.001");
}

const char *model_moe_chance(Arena *arena)
{
    return model_edit(arena, model_moe_z(arena), "\"scale\":1",
                      "\"second\":\"random\",\"capacity\":1.5");
}

const char *model_dropout(Arena *arena)
{
    return model_edit(arena, model_gpt2(arena), "{\"op\":\"add\",\"in\":[\"x\",\"o\"]",
                      "{\"op\":\"dropout\",\"rate\":0.3,\"in\":\"o\",\"out\":\"od\"},\n"
                      "{\"op\":\"add\",\"in\":[\"x\",\"od\"]");
}
