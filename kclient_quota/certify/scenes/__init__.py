"""All scenes, and those that were asked for."""

from collections.abc import Sequence

from kclient_quota.certify.scene import Scene
from kclient_quota.certify.scenes import administering, consuming, producing
from kclient_quota.errors import ConfigError

ALL: tuple[Scene, ...] = (*producing.SCENES, *consuming.SCENES, *administering.SCENES)


def select(names: Sequence[str]) -> list[Scene]:
    """The scenes whose names begin with one of `names`; all of them when there is none.

    Raises:
        ConfigError: a name fits no scene.
    """
    for name in names:
        if not any(scene.name.startswith(name) for scene in ALL):
            raise ConfigError(f"no scene {name!r}; known: {', '.join(scene.name for scene in ALL)}")
    return [scene for scene in ALL if not names or scene.name.startswith(tuple(names))]
