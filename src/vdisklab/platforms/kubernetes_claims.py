"""Claims of Kubernetes, and the storage of the volumes that their classes make.

A claim, or a DataVolume of CDI's that makes one, names a StorageClass, or gets the cluster's
default one: of several the newest (Kubernetes' "Storage Classes"; a DataVolume with `storage` first
looks for KubeVirt's own default: GetStorageClassByNameWithVirtFallback of CDI).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from vdisklab.path import mount_options
from vdisklab.path.segments import LayerKind
from vdisklab.platforms.reading import Tree, branches, tree, word
from vdisklab.value import Value

Documents = Mapping[str, Sequence[Tree]]
"""Objects by their kind in small letters."""

NFS_DRIVER, RBD_DRIVER, CEPHFS_DRIVER = "nfs.csi.k8s.io", "rbd.csi.ceph.com", "cephfs.csi.ceph.com"
"""The provisioners of csi-driver-nfs and ceph-csi; Rook puts its namespace before Ceph's."""

_DEFAULT = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
_DEFAULT_OF_GUESTS = "storageclass.kubevirt.io/is-default-virt-class"
_USUAL_MODES = {
    LayerKind.KRBD: "Block", LayerKind.NFS: "Filesystem", LayerKind.CEPHFS: "Filesystem",
}  # fmt: skip
"""What CDI makes of these classes where a DataVolume leaves it open
(pkg/storagecapabilities: CapabilitiesByProvisionerKey)."""


def claims_named(claim: str | None, namespace: str, documents: Documents) -> list[Tree]:
    """The claims of that name."""
    return [
        each
        for each in documents.get("persistentvolumeclaim", ())
        if _is_named(each, claim, namespace)
    ]


def kind_of_driver(driver: str | None) -> LayerKind | None:
    """The storage of a CSI driver's volumes: images of Ceph that the kernel maps, or directories
    on NFS or Ceph's file system; None for another driver."""
    name = driver or ""
    if name == NFS_DRIVER:
        return LayerKind.NFS
    if name == CEPHFS_DRIVER or name.endswith(f".{CEPHFS_DRIVER}"):
        return LayerKind.CEPHFS
    return LayerKind.KRBD if name.endswith(RBD_DRIVER) else None


def kind_of_class(claim: str | None, namespace: str, documents: Documents) -> LayerKind | None:
    """The storage of the volumes that a claim's class makes (`provisioner` of its StorageClass);
    None if the class is of another kind, or not among the documents."""
    found = _class_of(claim, namespace, documents)
    kind = kind_of_driver(word(found, "provisioner"))
    # With another mounter, rbd-nbd, no image is mapped by the kernel's rbd.
    unmapped = kind is LayerKind.KRBD and word(found, "parameters", "mounter") not in (None, "rbd")
    return None if unmapped else kind


def soft_mount(
    volume: Tree | None, claim: str | None, namespace: str, documents: Documents
) -> tuple[str, str] | None:
    """That a volume, or one that the claim's class will make, is mounted with `soft`, as a sentence
    begins, and where to change it; None if not.

    The last word counts.
    """
    found = _mount_options(volume, claim, namespace, documents)
    chosen = [option for option in found.options if option in ("hard", *mount_options.SOFT)]
    if not chosen or chosen[-1] == "hard":
        return None
    return (
        found.mounted_with(chosen[-1]),
        f"write it in place of `{chosen[-1]}` into the mountOptions of {found.name}{found.when}",
    )


def mount_without_flushes(
    volume: Tree | None, claim: str | None, namespace: str, documents: Documents
) -> tuple[str, str] | None:
    """That the file system of a volume, or of one that the claim's class will make, is mounted so
    that it sends no flushes to its disk, as a clause, and how to change that; None if not."""
    found = _mount_options(volume, claim, namespace, documents)
    option = mount_options.without_flushes(found.options)
    if option is None:
        return None
    return (
        f"{found.mounted_with(option)}, so no flush reaches the disk",
        f"Leave `{option}` out of the mountOptions of {found.name}{found.when}",
    )


class _MountOptions(Value):
    """The options with which a volume is mounted, and the object that says so; `when` is a clause:
    from when on a change holds."""

    name: str
    is_class: bool
    options: tuple[str, ...]

    @property
    def when(self) -> str:
        if self.is_class:
            return "; it holds for volumes made from then on"
        return "; it holds once the volume is mounted anew, with no guest on it"

    def mounted_with(self, option: str) -> str:
        if self.is_class:
            return f"Volumes of {self.name} are mounted with `{option}`"
        return f"{self.name} is mounted with `{option}`"


def _mount_options(
    volume: Tree | None, claim: str | None, namespace: str, documents: Documents
) -> _MountOptions:
    """`mountOptions` of a PersistentVolume are those of its mount; a class's are copied into the
    volumes that it makes (Kubernetes' "Persistent Volumes", "Mount Options")."""
    of_class = _class_of(claim, namespace, documents)
    given, owner, kind = of_class.get("mountOptions"), of_class, "StorageClass"
    if volume is not None:
        kind, owner, given = "PersistentVolume", volume, tree(volume, "spec").get("mountOptions")
    options = ",".join(map(str, given)).split(",") if isinstance(given, list) else []
    name = f"{kind} {word(owner, 'metadata', 'name') or '?'}"
    return _MountOptions(name, volume is None, tuple(option.strip() for option in options))


def usual_mode(claim: str | None, namespace: str, documents: Documents) -> str:
    """The volumeMode that CDI chooses for a DataVolume's `storage` without one: its class's profile
    says it, else the class's kind; empty if neither is known."""
    if not any("storage" in spec for spec in _data_volumes(claim, namespace, documents)):
        return ""
    found = _class_of(claim, namespace, documents)
    profiles = [
        profile
        for profile in documents.get("storageprofile", ())
        if found and word(profile, "metadata", "name") == word(found, "metadata", "name")
    ]
    stated = (
        mode
        for profile in profiles
        for part in ("spec", "status")
        for each in branches(profile, part, "claimPropertySets")
        if (mode := word(each, "volumeMode"))
    )
    kind = kind_of_class(claim, namespace, documents)
    return next(stated, "" if kind is None else _USUAL_MODES[kind])


def _class_of(claim: str | None, namespace: str, documents: Documents) -> Tree:
    """The StorageClass of a claim; empty if it is not among the documents, or has no claim."""
    for each in claims_named(claim, namespace, documents):
        return _class_named(tree(each, "spec"), documents, _DEFAULT)
    for spec in _data_volumes(claim, namespace, documents):
        if "storage" in spec:
            marks = (_DEFAULT_OF_GUESTS, *_DEFAULT)
            return _class_named(tree(spec, "storage"), documents, marks)
        return _class_named(tree(spec, "pvc"), documents, _DEFAULT)
    return {}


def _class_named(spec: Tree, documents: Documents, marks: Sequence[str]) -> Tree:
    """The class that a claim's specification names, which may be none (`""`); without a name the
    default one by the first of these annotations that any class has."""
    classes = documents.get("storageclass", ())
    if spec.get("storageClassName") is not None:
        name = word(spec, "storageClassName")
        return next((each for each in classes if name == word(each, "metadata", "name")), {})
    for mark in marks:
        named = [
            each
            for each in classes
            if str(tree(each, "metadata", "annotations").get(mark)).lower() == "true"
        ]
        if named:
            first = sorted(named, key=lambda each: word(each, "metadata", "name") or "")
            return max(first, key=_created)
    return {}


def _created(document: Tree) -> str:
    """When it was created, as text, which sorts like time, also where YAML made a date of it."""
    return str(tree(document, "metadata").get("creationTimestamp") or "")


def _data_volumes(claim: str | None, namespace: str, documents: Documents) -> Iterator[Tree]:
    """The specifications of the DataVolumes of that name, also in the templates of machines."""
    for each in documents.get("datavolume", ()):
        if _is_named(each, claim, namespace):
            yield tree(each, "spec")
    of_pool = ("spec", "virtualMachineTemplate", "spec")
    for kind, place in (("virtualmachine", ("spec",)), ("virtualmachinepool", of_pool)):
        for machine in documents.get(kind, ()):
            for template in branches(machine, *place, "dataVolumeTemplates"):
                where = word(machine, "metadata", "namespace") or ""
                if word(template, "metadata", "name") == claim and where in (namespace, ""):
                    yield tree(template, "spec")


def _is_named(document: Tree, name: str | None, namespace: str) -> bool:
    where = word(document, "metadata", "namespace") or ""
    return word(document, "metadata", "name") == name and where in (namespace, "")
