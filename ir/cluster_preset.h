/* cluster_preset.h - the files of examples/clusters as text, embedded by scripts/embed_presets.py.
 */
#ifndef LPLAN_IR_CLUSTER_PRESET_H
#define LPLAN_IR_CLUSTER_PRESET_H

typedef struct ClusterPreset {
    const char *name; /* the file's name without .json */
    const char *text;
} ClusterPreset;

extern const ClusterPreset cluster_presets[];
extern const int cluster_preset_count;

#endif
