"""Arrays sent to the device in one copy arrive unchanged."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from headway.executor.torch.memory.transfer import Arrival, copy_stream, send, send_together

CPU = torch.device("cpu")
ANY = st.sampled_from([np.int64, np.int32, np.float32, np.bool_]).flatmap(
    lambda kind: arrays(kind, array_shapes(max_dims=2, min_side=0, max_side=7))
)


@given(made=st.lists(ANY, max_size=5), turned=st.booleans())
def test_arrays_that_are_sent_together_arrive_with_their_shapes_and_dtypes(made, turned):
    made = [each.T if turned else each for each in made]
    for found in (send_together(CPU, made), send(CPU, *made)):
        for array, tensor in zip(made, found, strict=True):
            assert tensor.dtype is torch.from_numpy(array[:0].copy()).dtype
            np.testing.assert_array_equal(tensor.numpy(), array)


def test_on_a_cpu_results_are_there_at_once():
    one = torch.arange(3)
    assert copy_stream(CPU) is None and Arrival([one]).wait()[0] is one
