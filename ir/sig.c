/* sig.c - signatures: text, letters, and the match of a concrete signature against an op's pattern.
 */
#include "ir/sig.h"

#include <string.h>

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_run(char c)
{
    return c >= 'A' && c <= 'Z';
}

DimId sig_dim(const Net *net, char letter)
{
    if (letter == 't')
        return net->sequence;
    for (int i = 0; i < net->dims.n; i++) {
        if (net->dims.at[i].letter == letter)
            return (DimId)i;
    }
    return NONE;
}

/* One side of the arrow: operands separated by commas, from *text up to `stop`. */
static const char *parse_side(const char **text, char stop, int base, int max, int *count,
                              SigText *ret)
{
    const char *at = *text;
    for (;;) {
        if (*count == max)
            return "too many operands";
        int operand = base + (*count)++;
        for (; is_letter(*at); at++) {
            int n = ret->axes[operand];
            if (n == MAX_AXES)
                return "too many axes in one operand";
            if (memchr(ret->letter[operand], *at, (size_t)n))
                return "a letter twice in one operand";
            ret->letter[operand][n] = *at;
            ret->axes[operand]++;
        }
        if (*at != ',')
            break;
        at++;
    }
    if (*at != stop)
        return "a character that is neither a letter, ',' nor '->'";
    *text = at;
    return NULL;
}

const char *sig_parse(const char *text, int ins, SigText *ret)
{
    *ret = (SigText){0};
    if (ins == 0 && *text != '-')
        return "operands where the node has none";
    const char *why = NULL;
    if (ins > 0 && (why = parse_side(&text, '-', 0, MAX_IN, &ret->ins, ret)) != NULL)
        return why;
    if (ret->ins != ins)
        return "another number of operands than the node has";
    if (text[0] != '-' || text[1] != '>')
        return "no '->'";
    text += 2;
    return parse_side(&text, '\0', MAX_IN, MAX_OUT, &ret->outs, ret);
}

void sig_put(Str *str, const SigText *sig)
{
    for (int i = 0; i < sig->ins; i++) {
        if (i > 0)
            str_putc(str, ',');
        str_putn(str, sig->letter[i], (size_t)sig->axes[i]);
    }
    str_put(str, "->");
    for (int i = 0; i < sig->outs; i++) {
        if (i > 0)
            str_putc(str, ',');
        str_putn(str, sig->letter[MAX_IN + i], (size_t)sig->axes[MAX_IN + i]);
    }
}

SigText sig_of_node(const Graph *graph, const Node *node)
{
    SigText text = {.ins = node->ins, .outs = node->outs};
    const Sig *sig = &node->sig;
    for (int i = 0; i < node->ins; i++) {
        text.axes[i] = graph->values.at[node->in[i]].axes;
        for (int a = 0; a < text.axes[i]; a++)
            text.letter[i][a] = sig->letter[sig->in[i][a]];
    }
    for (int i = 0; i < node->outs; i++) {
        text.axes[MAX_IN + i] = graph->values.at[node->out[i]].axes;
        for (int a = 0; a < text.axes[MAX_IN + i]; a++)
            text.letter[MAX_IN + i][a] = sig->letter[sig->out[i][a]];
    }
    return text;
}

/* What the letters of a pattern stand for: a stretch of the concrete text each. */
typedef struct Binding {
    const char *at[128];
    int n[128];
} Binding;

static bool small_is_free(const Binding *bind, char concrete)
{
    for (char p = 'a'; p <= 'z'; p++) {
        if (bind->at[(int)p] && *bind->at[(int)p] == concrete)
            return false;
    }
    return true;
}

static bool match(const char *pattern, const char *text, Binding *bind)
{
    if (*pattern == '\0')
        return *text == '\0';
    int p = (unsigned char)*pattern & 127;
    if (!is_letter(*pattern))
        return *text == *pattern && match(pattern + 1, text + 1, bind);
    if (bind->at[p]) {
        size_t n = (size_t)bind->n[p];
        return strncmp(text, bind->at[p], n) == 0 && match(pattern + 1, text + n, bind);
    }
    int longest = 0;
    while (longest < (is_run(*pattern) ? MAX_AXES : 1) && is_letter(text[longest]))
        longest++;
    for (int n = is_run(*pattern) ? 0 : 1; n <= longest; n++) {
        if (!is_run(*pattern) && !small_is_free(bind, *text))
            return false;
        bind->at[p] = text;
        bind->n[p] = n;
        if (match(pattern + 1, text + n, bind))
            return true;
        bind->at[p] = NULL;
    }
    return false;
}

enum { MAX_OPTIONAL = 3 };

/* The pattern for a node: of the optional operands those in `with`; split and stack take as many
 * parts as their letter c has, of which the pattern shows the most. */
static void pattern_of(OpId op, int ins, int outs, unsigned with, char ret[SIG_TEXT_MAX])
{
    int count = 1, limit = ins, n = 0, optional = 0;
    bool parts = op == OP_SPLIT || op == OP_STACK, taken = true;
    for (const char *at = op_info[op].pattern; *at; at++) {
        if (*at == '[') {
            taken = with >> optional++ & 1;
            continue;
        }
        if (*at == ']') {
            taken = true;
            continue;
        }
        if (*at == '-') {
            count = 1;
            limit = outs;
        } else if (*at == ',') {
            count++;
        }
        if (taken && (!parts || count <= limit))
            ret[n++] = *at;
    }
    ret[n] = '\0';
}

static bool run_starts_with(const Binding *bind, char whole, char part)
{
    int w = whole, p = part;
    return bind->n[p] <= bind->n[w] && strncmp(bind->at[w], bind->at[p], (size_t)bind->n[p]) == 0;
}

static bool operand_has(const SigText *text, int operand, char letter)
{
    return memchr(text->letter[operand], letter, (size_t)text->axes[operand]) != NULL;
}

static const char *check_free(OpId op, const SigText *text)
{
    int most = op == OP_EINSUM ? 2 : 1;
    if (text->ins < 1 || text->ins > most || text->outs != 1)
        return op == OP_EINSUM ? "einsum takes one or two operands and makes one"
                               : "it takes one operand and makes one";
    for (int a = 0; op != OP_BROADCAST && a < text->axes[MAX_IN]; a++) {
        char letter = text->letter[MAX_IN][a];
        if (!operand_has(text, 0, letter) && (text->ins < 2 || !operand_has(text, 1, letter)))
            return "an output letter that no operand has";
    }
    for (int a = 0; op == OP_BROADCAST && a < text->axes[0]; a++) {
        if (!operand_has(text, MAX_IN, text->letter[0][a]))
            return "an input letter that the output lacks";
    }
    return NULL;
}

/* The weights of experts have their expert first, then the letters that one side has beyond tokens
 * and choices and those that the other has, in any order. */
static const char *check_expert(OpId op, const SigText *text)
{
    int weight = op == OP_EXPERT ? 2 : MAX_IN, made = op == OP_EXPERT ? MAX_IN : 1;
    int read = op == OP_EXPERT ? 1 : 2, tokens = text->axes[0] - 1;
    int side[2] = {made, read}, letters = 0;
    for (int i = 0; i < 2; i++) {
        for (int a = tokens; a < text->axes[side[i]]; a++) {
            char letter = text->letter[side[i]][a];
            if (letter == text->letter[0][tokens])
                continue;
            letters++;
            if (!operand_has(text, weight, letter) || operand_has(text, 0, letter))
                return "a letter of one side that the weights of the experts lack";
            if (operand_has(text, side[1 - i], letter))
                return "both sides of the experts have one letter";
        }
    }
    if (letters + 1 != text->axes[weight])
        return "the weights of the experts have a letter that neither side has";
    return NULL;
}

static int letter_index(const Sig *sig, char letter)
{
    for (int i = 0; i < sig->letters; i++) {
        if (sig->letter[i] == letter)
            return i;
    }
    return NONE;
}

static uint16_t pattern_set(const Sig *sig, const Binding *bind, const char *letters)
{
    uint16_t set = 0;
    for (; *letters; letters++) {
        int p = *letters;
        for (int i = 0; i < bind->n[p]; i++)
            set |= (uint16_t)(1u << letter_index(sig, bind->at[p][i]));
    }
    return set;
}

static const char *number_letters(const Net *net, const SigText *text, Sig *ret)
{
    for (int o = 0; o < MAX_IN + MAX_OUT; o++) {
        for (int a = 0; a < text->axes[o]; a++) {
            char letter = text->letter[o][a];
            int index = letter_index(ret, letter);
            if (index == NONE) {
                if (ret->letters == MAX_LETTERS)
                    return "more letters than one node may have";
                index = ret->letters++;
                ret->letter[index] = letter;
                ret->dim[index] = sig_dim(net, letter);
                if (ret->dim[index] == NONE)
                    return "a letter that no dim has";
            }
            if (o < MAX_IN)
                ret->in[o][a] = (int8_t)index;
            else
                ret->out[o - MAX_IN][a] = (int8_t)index;
        }
    }
    return NULL;
}

const char *sig_resolve(const Net *net, OpId op, const SigText *text, Sig *ret)
{
    *ret = (Sig){0};
    const char *why = number_letters(net, text, ret);
    if (why)
        return why;
    ret->in_out = (uint16_t)((1u << ret->letters) - 1);
    for (int i = 0; i < text->outs; i++) {
        uint16_t own = 0;
        for (int a = 0; a < text->axes[MAX_IN + i]; a++)
            own |= (uint16_t)(1u << ret->out[i][a]);
        ret->in_out &= own;
    }
    if (strcmp(op_info[op].pattern, "*") == 0)
        return check_free(op, text);
    char pattern[SIG_TEXT_MAX], concrete[SIG_TEXT_MAX];
    int n = 0;
    for (int o = 0; o < MAX_IN + MAX_OUT; o++) {
        bool used = o < MAX_IN ? o < text->ins : o - MAX_IN < text->outs;
        if (o == MAX_IN) {
            concrete[n++] = '-';
            concrete[n++] = '>';
        }
        if (!used)
            continue;
        if (o > 0 && o != MAX_IN)
            concrete[n++] = ',';
        memcpy(concrete + n, text->letter[o], (size_t)text->axes[o]);
        n += text->axes[o];
    }
    concrete[n] = '\0';
    Binding bind = {{0}, {0}};
    bool fits = false;
    for (unsigned with = 0; !fits && with < 1u << MAX_OPTIONAL; with++) {
        pattern_of(op, text->ins, text->outs, with, pattern);
        bind = (Binding){{0}, {0}};
        fits = match(pattern, concrete, &bind);
    }
    if (!fits)
        return "it does not match the op's pattern";
    if (op == OP_ATTENTION || op == OP_ATTENTION_GRAD) {
        if (!run_starts_with(&bind, 'A', 'B'))
            return "the head axes of the keys must begin those of the queries";
        if (bind.n['E'] != 1)
            return "values have one axis beyond their heads";
    }
    if ((op == OP_EXPERT || op == OP_EXPERT_DW) && (why = check_expert(op, text)) != NULL)
        return why;
    ret->nosplit = pattern_set(ret, &bind, op_info[op].nosplit);
    ret->base = pattern_set(ret, &bind, op_info[op].base);
    return NULL;
}

bool op_reads_index(OpId op, const SigText *sig, int operand)
{
    switch (op) {
    case OP_LOOKUP:
    case OP_PICK:
    case OP_ONEHOT:
    case OP_SCATTER:
    case OP_PLACES:
    case OP_CAPACITY:
    case OP_DEAL:
    case OP_TALLY:
    case OP_TAKE:
    case OP_SPREAD:
    case OP_EXPERT:
    case OP_EXPERT_DW:
        return operand == 0;
    case OP_CHANCE:
        return operand != 1;
    case OP_ROPE:
        return operand == 1;
    case OP_ATTENTION:
    case OP_ATTENTION_GRAD: /* the begins of documents, [b, s], and words of rows; slopes have heads
                               alone */
        return operand >= (op == OP_ATTENTION ? 3 : 6) && sig->axes[operand] >= 2 &&
               memcmp(sig->letter[operand], sig->letter[0], 2) == 0;
    default:
        return false;
    }
}

bool op_makes_index(OpId op)
{
    return op == OP_IOTA || op == OP_PLACES || op == OP_TOPK || op == OP_CAPACITY ||
           op == OP_DEAL || op == OP_CHANCE || op == OP_DRAW;
}
