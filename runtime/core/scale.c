/* scale.c - the factor on the loss of a trainer that stores fp16, so that small gradients do not
 * become zero.
 *
 * Every rank steps it by numbers that came out of the world's reduction, so all agree without a
 * word. The rule is that of Micikevicius et al., Mixed Precision Training (2018), with the
 * hysteresis of Megatron-LM's scaler. Powers of two: scaling back is exact. */
#include "runtime/core/scale.h"

#include <math.h>
#include <stdio.h>

#define HYSTERESIS 2 /* bad steps until the factor is halved; made good when it grows */
#define LARGEST 16777216.0

void lp_scaler_begin(LpSelf *self)
{
    self->scaler = (LpScaler){.scale = self->rank.options->loss_scale, .patience = HYSTERESIS};
}

double lp_loss_scale(void)
{
    return lp_self->evaluating ? 1 : lp_self->scaler.scale;
}

bool lp_loss_scale_step(bool finite)
{
    LpScaler *scaler = &lp_self->scaler;
    scaler->bad = !finite;
    if (!finite) {
        scaler->skipped++;
        scaler->good = 0;
        if (scaler->patience > 1)
            scaler->patience--;
        else
            scaler->scale = fmax(scaler->scale * 0.5, 1.0);
        return true;
    }
    if (++scaler->good == lp_self->rank.options->loss_scale_window) {
        scaler->scale = fmin(scaler->scale * 2.0, LARGEST);
        scaler->good = 0;
        scaler->patience = HYSTERESIS;
    }
    return false;
}

int64_t lp_updates(int64_t step)
{
    return step - lp_self->scaler.skipped;
}

void lp_inject(float *gradient)
{
    const LpSelf *self = lp_self;
    long long step, rank;
    const char *text = self->rank.options->inject;
    if (text && sscanf(text, "%lld:%lld", &step, &rank) == 2 && rank == self->rank.index &&
        step == atomic_load_explicit(&self->track.step, memory_order_relaxed))
        *gradient = INFINITY;
}
