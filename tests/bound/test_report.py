"""What a person reads fits 80 columns, whatever the model, the device and the measurement."""

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from uncork.bound import bound_for, hardware, model_bytes
from uncork.bound.picture import draw
from uncork.bound.prefill import prefill_bound
from uncork.bound.report import Report, lines
from uncork.errors import Refused
from uncork.model.bound import Hardware, ModelBytes, Parallel

MODELS = [model_bytes(path) for path in sorted((Path(__file__).parent / "models").iterdir())]


@settings(deadline=None, max_examples=80)
@given(
    st.sampled_from(MODELS),
    st.sampled_from(hardware.table()),
    st.sampled_from([1, 2, 8, 16]),
    st.sampled_from([0, 1536, 131_072]),
    st.sampled_from([1, 64, 1000]),
    st.floats(0.0001, 10),
)
def test_every_line_fits_80_columns(
    model: ModelBytes, device: Hardware, tp: int, context: int, users: int, share: float
) -> None:
    parallel = Parallel(tp=tp)
    try:
        bound = bound_for(model, device, parallel, context, users)
    except Refused:
        return
    measured = bound.silicon.tok_s * share
    report = Report.of(
        model, device, (bound,), prefill_bound(model, device, parallel, context + 1), measured, 1000
    )

    text = [*lines(report), *draw((bound,), measured), *report.closing()]

    assert [line for line in text if len(line) > 80] == []
    assert any("BEATEN" in line for line in text) == bool(report.efficiency and report.efficiency.beaten)
