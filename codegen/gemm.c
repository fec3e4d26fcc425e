/* gemm.c - grouping the letters of an einsum into rows, columns and depth of matrices.
 *
 * Letters of both operands and the output are batches: loops. Letters of one operand and the output
 * are its rows or columns, letters of the operands alone the depth. A group of letters is one index
 * where it is dense in every operand that has it; a letter that is not becomes a loop too. */
#include "codegen/gemm.h"

#include "codegen/emit.h"

enum { OPERAND_A, OPERAND_B, OPERAND_C, OPERANDS };

typedef struct Letters {
    int n;
    int8_t at[MAX_LETTERS];
} Letters;

typedef struct Einsum {
    const Body *body;
    int copy[OPERANDS];
    int letters;
    bool has[OPERANDS][MAX_LETTERS];
    int64_t extent[MAX_LETTERS], stride[OPERANDS][MAX_LETTERS];
    int64_t block[OPERANDS]; /* elements from one block to the next, where a turn of a ring sees one
                                of the operand; else 0 */
    AtomList ring;
    char name[MAX_LETTERS];
} Einsum;

static void read_operand(Einsum *e, int which, const int8_t *letter, int copy,
                         const NodeChoice *choice)
{
    const Copy *c = &e->body->copies.at[copy];
    int axes = e->body->graph->values.at[c->value].axes;
    int block = ring_block_axis(&e->ring, choice, letter, axes);
    int64_t stride = 1;
    e->copy[which] = copy;
    for (int a = axes - 1; a >= 0; a--) {
        int l = letter[a];
        e->has[which][l] = true;
        e->extent[l] = c->local[a];
        e->stride[which][l] = stride;
        if (a == block) {
            e->extent[l] /= list_extent(e->body->mesh, &e->ring);
            e->block[which] = stride * e->extent[l];
        }
        stride *= c->local[a];
    }
}

/* Letters that are in x and y and not in z, in the order of operand x. */
static Letters shared_letters(const Einsum *e, int x, int y, int z)
{
    Letters list = {0};
    for (int l = 0; l < e->letters; l++) {
        if (!e->has[x][l] || !e->has[y][l] || e->has[z][l])
            continue;
        int at = list.n++;
        while (at > 0 && e->stride[x][list.at[at - 1]] < e->stride[x][l]) {
            list.at[at] = list.at[at - 1];
            at--;
        }
        list.at[at] = (int8_t)l;
    }
    return list;
}

static bool is_dense(const Einsum *e, int operand, const Letters *list)
{
    for (int i = 0; i + 1 < list->n; i++) {
        int outer = list->at[i], inner = list->at[i + 1];
        if (e->extent[outer] != 1 &&
            e->stride[operand][outer] != e->stride[operand][inner] * e->extent[inner])
            return false;
    }
    return true;
}

static void add_loop(Arena *arena, const Einsum *e, int l, Gemm *gemm)
{
    if (e->extent[l] == 1)
        return;
    GemmLoop *loop = &gemm->loop[gemm->loops++];
    char letter[2] = {e->name[l], 0};
    loop->name = emit_ident(arena, letter);
    loop->extent = e->extent[l];
    loop->sums = !e->has[OPERAND_C][l];
    for (int k = 0; k < OPERANDS; k++)
        loop->stride[k] = e->has[k][l] ? e->stride[k][l] : 0;
}

/* Takes letters away from the front until the rest is one index in both operands. */
static void make_dense(Arena *arena, const Einsum *e, int x, int y, Letters *list, Gemm *gemm)
{
    while (list->n > 1 && (!is_dense(e, x, list) || !is_dense(e, y, list))) {
        add_loop(arena, e, list->at[0], gemm);
        for (int i = 1; i < list->n; i++)
            list->at[i - 1] = list->at[i];
        list->n--;
    }
}

static int64_t extent_of(const Einsum *e, const Letters *list)
{
    int64_t n = 1;
    for (int i = 0; i < list->n; i++)
        n *= e->extent[list->at[i]];
    return n;
}

static int64_t stride_of(const Einsum *e, int operand, const Letters *list)
{
    for (int i = list->n - 1; i >= 0; i--) {
        if (e->extent[list->at[i]] != 1)
            return e->stride[operand][list->at[i]];
    }
    return list->n ? e->stride[operand][list->at[0]] : 1;
}

/* One of the two strides must be 1: which decides the transposition. */
static bool make_matrix(int64_t rows, int64_t row_stride, int64_t cols, int64_t col_stride,
                        bool *ret_trans, int64_t *ret_ld)
{
    if (col_stride == 1 || cols == 1) {
        *ret_trans = false;
        *ret_ld = rows == 1 ? cols : row_stride;
        return *ret_ld >= cols;
    }
    if (row_stride == 1 || rows == 1) {
        *ret_trans = true;
        *ret_ld = cols == 1 ? rows : col_stride;
        return *ret_ld >= rows;
    }
    return false;
}

static void swap_int64(int64_t *x, int64_t *y)
{
    int64_t t = *x;
    *x = *y;
    *y = t;
}

/* c came out as [n][m]: c' = b' a'. */
static void transpose_all(Gemm *gemm)
{
    int copy = gemm->a;
    bool trans = gemm->trans_a;
    swap_int64(&gemm->block[OPERAND_A], &gemm->block[OPERAND_B]);
    gemm->a = gemm->b;
    gemm->b = copy;
    gemm->trans_a = !gemm->trans_b;
    gemm->trans_b = !trans;
    swap_int64(&gemm->m, &gemm->n);
    swap_int64(&gemm->lda, &gemm->ldb);
    for (int i = 0; i < gemm->loops; i++)
        swap_int64(&gemm->loop[i].stride[OPERAND_A], &gemm->loop[i].stride[OPERAND_B]);
}

bool gemm_build(Arena *arena, const Body *body, const Inst *inst, Gemm *ret)
{
    const Node *node = &body->graph->nodes.at[inst->node[0]];
    if (!node_is_product(body->graph, node))
        return false;
    const NodeChoice *choice = &body->plan->choice[inst->node[0]];
    Einsum e = {.body = body, .letters = node->sig.letters, .ring = node_ring(body->mesh, choice)};
    for (int l = 0; l < e.letters; l++)
        e.name[l] = node->sig.letter[l];
    read_operand(&e, OPERAND_A, node->sig.in[0], inst->bind_in[0][0], choice);
    read_operand(&e, OPERAND_B, node->sig.in[1], inst->bind_in[0][1], choice);
    read_operand(&e, OPERAND_C, node->sig.out[0], inst->bind_out[0][0], choice);
    Gemm gemm = {.a = e.copy[OPERAND_A],
                 .b = e.copy[OPERAND_B],
                 .c = e.copy[OPERAND_C],
                 .adds = inst->adds & 1,
                 .ring = e.ring,
                 .turn = inst->turn,
                 .block = {e.block[0], e.block[1], e.block[2]}};
    for (int l = 0; l < e.letters; l++) {
        if (e.has[OPERAND_A][l] && e.has[OPERAND_B][l] && e.has[OPERAND_C][l])
            add_loop(arena, &e, l, &gemm);
        if (e.has[OPERAND_A][l] + e.has[OPERAND_B][l] + e.has[OPERAND_C][l] < 2)
            return false; /* a letter that is only summed: a row program */
    }
    Letters m = shared_letters(&e, OPERAND_A, OPERAND_C, OPERAND_B),
            n = shared_letters(&e, OPERAND_B, OPERAND_C, OPERAND_A);
    Letters k = shared_letters(&e, OPERAND_A, OPERAND_B, OPERAND_C);
    make_dense(arena, &e, OPERAND_A, OPERAND_C, &m, &gemm);
    make_dense(arena, &e, OPERAND_B, OPERAND_C, &n, &gemm);
    if (e.ring.n > 0) /* a block of tokens is one index in what passes by, not in what stays */
        make_dense(arena, &e, OPERAND_A, OPERAND_B, &k, &gemm);
    if (!is_dense(&e, OPERAND_A, &k) || !is_dense(&e, OPERAND_B, &k))
        return false;
    gemm.m = extent_of(&e, &m);
    gemm.n = extent_of(&e, &n);
    gemm.k = extent_of(&e, &k);
    bool trans_c;
    if (!make_matrix(gemm.m, stride_of(&e, OPERAND_A, &m), gemm.k, stride_of(&e, OPERAND_A, &k),
                     &gemm.trans_a, &gemm.lda) ||
        !make_matrix(gemm.k, stride_of(&e, OPERAND_B, &k), gemm.n, stride_of(&e, OPERAND_B, &n),
                     &gemm.trans_b, &gemm.ldb) ||
        !make_matrix(gemm.m, stride_of(&e, OPERAND_C, &m), gemm.n, stride_of(&e, OPERAND_C, &n),
                     &trans_c, &gemm.ldc))
        return false;
    if (trans_c)
        transpose_all(&gemm);
    *ret = gemm;
    return true;
}
