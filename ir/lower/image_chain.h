/* image_chain.h - which links of a plan's chain its image keeps. */
#ifndef LPLAN_IR_LOWER_IMAGE_CHAIN_H
#define LPLAN_IR_LOWER_IMAGE_CHAIN_H

#include "ir/plan.h"

typedef struct ImageLink {
    int of;    /* the link of the whole chain that it stands for */
    int index; /* its layer number: another than that of `of` where it is one more instance */
} ImageLink;

typedef struct ImageChain {
    VEC(ImageLink) links;
    int *first_link; /* chunks + 1 */
} ImageChain;

/* The first stage, the last, and all stages between them as one: of each, two links of every class
 * (three in the first where stages are uneven), tied ones before others. Classes that are numbered
 * and hand on what they take get more instances where the stage has too few. */
ImageChain image_chain(Arena *arena, const Plan *plan, const Net *net, int chunks);
/* The "chain" of a model file with these links alone. */
json_t *image_chain_json(const json_t *chain, const ImageChain *image);

#endif
