"""The eight levels against a search through all entries; sanitizing against Java's own rules."""

import string

from hypothesis import given
from hypothesis import strategies as st

from kclient_quota.quota.callback import ClientQuotaType
from kclient_quota.quota.entity import DEFAULT, ClientQuotaEntity, desanitize, sanitize
from kclient_quota.quota.manager import ClientQuotaManager
from kclient_quota.quota.throttle import UNLIMITED

users = st.sampled_from(["u", "v", "<default>", DEFAULT, None])
clients = st.sampled_from(["c", "d", DEFAULT, None])
changes = st.lists(
    st.tuples(users, clients, st.one_of(st.integers(1, 9), st.none())).filter(lambda row: row[:2] != (None, None)),
    max_size=30,
)


def precedence(entry, user, client_id):
    """Lower is stronger; None does not apply. From KIP-55's list, by counting instead of listing."""
    by_user, by_client = entry
    if by_user not in {user, DEFAULT, None} or by_client not in {client_id, DEFAULT, None}:
        return None
    user_rank = {user: 0, DEFAULT: 1, None: 2}[by_user]
    return user_rank, {client_id: 0, DEFAULT: 1, None: 2}[by_client]


@given(changes, st.sampled_from(["u", "v", "w", "<default>"]), st.sampled_from(["c", "d", "e"]))
def test_strongest_level_wins(moves, user, client_id):
    manager, entries = ClientQuotaManager(ClientQuotaType.PRODUCE), {}
    for by_user, by_client, value in moves:
        manager.update_quota(ClientQuotaEntity.of(user=by_user, client_id=by_client), value)
        entries[by_user, by_client] = value
    applying = [
        (precedence(entry, user, client_id), value)
        for entry, value in entries.items()
        if value is not None and precedence(entry, user, client_id) is not None
    ]
    assert manager.quota(user, client_id) == (min(applying)[1] if applying else UNLIMITED)
    assert manager.quotas_enabled is any(value is not None for value in entries.values())
    matches = manager._callback.levels(ClientQuotaType.PRODUCE).matches(sanitize(user), client_id)
    assert [limit for _, limit in matches] == [value for _, value in sorted(applying)]


def java_url_encoded(name):
    """URLEncoder.encode(name, UTF-8), then Sanitizer's replacements, written after their documentation."""
    kept = string.ascii_letters + string.digits + ".-_"
    return "".join(char if char in kept else "".join(f"%{byte:02X}" for byte in char.encode()) for char in name)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_sanitize_is_java_url_encoder(name):
    assert sanitize(name) == java_url_encoded(name)
    assert desanitize(sanitize(name)) == name
