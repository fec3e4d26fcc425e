/* draw.cuh - the random words of dropout: a pure function of where they go. */

/* The first word of Philox-4x32-10 (Salmon et al., SC'11) at counter (index, stream, 3) under the
 * key `seed`: templates/host/draw.h, word for word. */
LP_DEVICE lp_u32 lp_draw(long seed, long stream, long index)
{
    lp_u32 x0 = (lp_u32)index, x1 = (lp_u32)((unsigned long)index >> 32);
    lp_u32 x2 = (lp_u32)stream, x3 = 3u;
    lp_u32 k0 = (lp_u32)seed, k1 = (lp_u32)((unsigned long)seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const unsigned long a = (unsigned long)0xD2511F53u * x0,
                            b = (unsigned long)0xCD9E8D57u * x2;
        x0 = (lp_u32)(b >> 32) ^ x1 ^ k0;
        x1 = (lp_u32)b;
        x2 = (lp_u32)(a >> 32) ^ x3 ^ k1;
        x3 = (lp_u32)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return x0;
}
