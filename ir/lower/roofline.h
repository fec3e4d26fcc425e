/* roofline.h - what a kernel and an instruction of a body cost on a device: a roofline per kernel
 * form.
 *
 * All costs are integer ns. Compute: max(FLOPs / rate, bytes / bandwidth) + launch, the GEMM rate
 * rising with its size: rate = peak x permille x f / (f + small_gemm_flops). Attention takes the
 * time of the pairs that its mask leaves, as kernels that skip hidden tiles do, and of
 * attention_row_pairs more for each query, which have a rate of their own (attention_permille).
 * Where ranks have parts of the sequence, the rank that sees most is the one all wait for: an
 * unbalanced ring costs twice a balanced one. What data hide (documents) is not known here. FLOPs
 * that are reported as work count all pairs, whatever the mask, as the field does.
 * Collectives cost what link.h says. */
#ifndef LPLAN_IR_LOWER_ROOFLINE_H
#define LPLAN_IR_LOWER_ROOFLINE_H

#include "ir/lower/body.h"

typedef struct Roofline {
    const Cluster *cluster;
    const Net *net;
    const Mesh *mesh;
    const Recipe *recipe;
} Roofline;

/* FLOP/s at most of products whose factors are stored so: what utilisation is a share of. */
int64_t device_peak_flops(const Device *device, DType factors);
/* One GEMM whose narrower factor is stored so: products of fp32 run at the rate of fp32 whatever
 * the recipe is. */
int64_t price_flops(const Device *device, DType factors, int64_t flops);
/* Attention on as many pairs as take so many FLOPs. */
int64_t price_attention(const Device *device, DType factors, int64_t flops);
/* FLOPs of a block of attention, as many as it takes the time of: of all its pairs there are
 * `flops`; the mask leaves `pairs`, and each of `rows` queries takes attention_row_pairs more. */
int64_t attention_flops(const Device *device, int64_t flops, int64_t rows, int64_t pairs,
                        int64_t all);
int64_t price_stream(const Device *device, int64_t bytes); /* bytes through memory */

/* One placed node by itself. */
int64_t node_ns(const Roofline *roof, const Graph *graph, const Node *node, const Placement *in,
                const Placement *out);
/* One instruction of a body, all its nodes: FLOPs of each, bytes of the stored operands only. Where
 * rows go by whom they name in messages of their own size, a host must know how many they are: the
 * device waits for it (Device.host_wait_ns). */
int64_t inst_ns(const Roofline *roof, const Body *body, const Inst *inst);
/* The matrix-product FLOPs of an instruction on this rank. */
int64_t inst_flops(const Body *body, const Inst *inst);
/* What each rank sends in a collective of a body. */
int64_t inst_wire_bytes(const Body *body, const Inst *inst);
bool inst_is_collective(const Inst *inst);
/* Is what a move carries a gradient, rather than a forward value gathered again? */
bool inst_moves_gradient(const Body *body, const Inst *inst);
/* Local FLOPs of one placed node (2 per multiply-add; causal attention counted in full). */
int64_t local_flops(const Net *net, const Mesh *mesh, const Node *node, const Placement *in,
                    const Placement *out, const Graph *graph);

#endif
