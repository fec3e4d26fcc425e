/* shake.h - fault injection: operations in flight are held back by random times. */
#ifndef LPLAN_RUNTIME_CORE_SHAKE_H
#define LPLAN_RUNTIME_CORE_SHAKE_H

#include "runtime/core/work.h"

/* Under --shake: this operation may not go on yet. Asked before each of its rounds is posted and
 * before its last one counts as done. Messages of one class to one peer stay in posting order, for
 * they match by it. */
bool lp_shake_holds(LpSelf *self, LpWork *work);

#endif
