"""All scenes, and those that were asked for."""

from collections.abc import Sequence

from kclient_quota.certify.choice import chosen
from kclient_quota.certify.scene import Scene
from kclient_quota.certify.scenes import administering, connecting, consuming, producing, sharing

ALL: tuple[Scene, ...] = (
    *producing.SCENES,
    *consuming.SCENES,
    *sharing.SCENES,
    *connecting.SCENES,
    *administering.SCENES,
)


def select(names: Sequence[str]) -> list[Scene]:
    """The scenes whose names begin with one of `names`; all of them when there is none.

    Raises:
        ConfigError: a name fits no scene.
    """
    return chosen("scene", ALL, names)
