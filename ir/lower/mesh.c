/* mesh.c - the ranks of a stage as a mesh of atoms: coordinates, groups, roles. */
#include "ir/lower/place.h"

int mesh_ranks(const Mesh *mesh)
{
    int ranks = 1;
    for (int a = 0; a < mesh->n; a++)
        ranks *= mesh->atom[a].extent;
    return ranks;
}

int mesh_extent(const Mesh *mesh, AtomSet atoms)
{
    int extent = 1;
    for (int a = 0; a < mesh->n; a++)
        if (atoms >> a & 1)
            extent *= mesh->atom[a].extent;
    return extent;
}

int list_extent(const Mesh *mesh, const AtomList *list)
{
    int extent = 1;
    for (int i = 0; i < list->n; i++)
        extent *= mesh->atom[list->at[i]].extent;
    return extent;
}

AtomSet list_set(const AtomList *list)
{
    AtomSet set = 0;
    for (int i = 0; i < list->n; i++)
        set = (AtomSet)(set | 1u << list->at[i]);
    return set;
}

static int mesh_stride(const Mesh *mesh, int atom)
{
    int stride = 1;
    for (int a = 0; a < atom; a++)
        stride *= mesh->atom[a].extent;
    return stride;
}

int mesh_coordinate(const Mesh *mesh, int rank, int atom)
{
    return rank / mesh_stride(mesh, atom) % mesh->atom[atom].extent;
}

int list_index(const Mesh *mesh, const AtomList *list, int rank)
{
    int index = 0;
    for (int i = 0; i < list->n; i++)
        index = index * mesh->atom[list->at[i]].extent + mesh_coordinate(mesh, rank, list->at[i]);
    return index;
}

int mesh_group(const Mesh *mesh, const AtomList *list, int rank, int *ret_ranks, int cap)
{
    int n = list_extent(mesh, list), first = rank;
    for (int i = 0; i < list->n; i++)
        first -= mesh_coordinate(mesh, rank, list->at[i]) * mesh_stride(mesh, list->at[i]);
    CHECK(n <= cap);
    for (int index = 0; index < n; index++) {
        int at = first, left = index;
        for (int i = list->n - 1; i >= 0; i--) {
            int extent = mesh->atom[list->at[i]].extent;
            at += left % extent * mesh_stride(mesh, list->at[i]);
            left /= extent;
        }
        ret_ranks[index] = at;
    }
    return n;
}

int mesh_turned(const Mesh *mesh, const AtomList *list, int rank, int by)
{
    int n = list_extent(mesh, list), index = list_index(mesh, list, rank);
    int left = ((index + by) % n + n) % n;
    for (int i = list->n - 1; i >= 0; i--) {
        int extent = mesh->atom[list->at[i]].extent, atom = list->at[i];
        rank += (left % extent - mesh_coordinate(mesh, rank, atom)) * mesh_stride(mesh, atom);
        left /= extent;
    }
    return rank;
}

AtomSet role_atoms(const Mesh *mesh, Role role)
{
    AtomSet set = role == ROLE_EP ? mesh->ep : role == ROLE_ETP ? mesh->etp : 0;
    for (int a = 0; a < mesh->n; a++)
        if (mesh->atom[a].role == role)
            set = (AtomSet)(set | 1u << a);
    return set;
}

AtomSet token_atoms(const Mesh *mesh)
{
    return (AtomSet)(role_atoms(mesh, ROLE_DP) | role_atoms(mesh, ROLE_CP));
}

bool mesh_has_experts(const Mesh *mesh)
{
    return (mesh->ep | mesh->etp | mesh->edp) != 0;
}
