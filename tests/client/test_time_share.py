from vcdl.client.time_share import TimeShare


def test_the_client_extrapolates_the_true_end_from_it_however_long_the_start_took() -> None:
    """As that client reckons: what passed, by the share. A start of 60 s, a first batch of 5 s, 100 of 0.1 s."""
    now_s = [0.0]
    share = TimeShare(earlier_s=30.0, clock=lambda: now_s[0])
    for batch in range(1, 101):
        now_s[0] = 65.0 + 0.1 * (batch - 1)
        share.record_progress(batch / 100)
        if batch == 1:
            assert share.share is None
        else:
            assert share.share is not None
            assert abs((30.0 + now_s[0]) / share.share - (30.0 + 65.0 + 9.9)) < 1e-6
    assert share.share == 1.0


def test_it_never_goes_back() -> None:
    now_s = [0.0]
    share, told = TimeShare(0.0, clock=lambda: now_s[0]), []
    for time_s, fraction in ((10.0, 0.1), (11.0, 0.5), (40.0, 0.6), (40.0, 0.6), (50.0, 0.9)):
        now_s[0] = time_s
        share.record_progress(fraction)
        told.append(share.share or 0.0)
    assert told == sorted(told)
    assert told[-1] < 1.0
