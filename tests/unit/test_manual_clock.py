from kclient_quota.testing.clock import ManualClock


def test_sleep_moves_time_and_never_back(manual_clock: ManualClock) -> None:
    manual_clock.sleep_ms(250)
    manual_clock.sleep_ms(-1)
    assert manual_clock.now_ms() == 250
    manual_clock.jump_to_ms(10)
    assert manual_clock.now_ms() == 10
