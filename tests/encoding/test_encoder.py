import json
from dataclasses import asdict
from pathlib import Path

import numpy as np

from lsr_prod.encoding.encoder import EncoderFactory
from lsr_prod.inference import BundleEncoder


def test_a_factory_that_went_through_json_opens_the_bundle_with_its_options(tiny_bundle: Path):
    factory = EncoderFactory(**json.loads(json.dumps(asdict(EncoderFactory.of_bundle(tiny_bundle, threads=2)))))
    assert factory.arguments == {"folder": str(tiny_bundle), "threads": 2}
    opened = factory.open()
    assert isinstance(opened, BundleEncoder)
    settings = {"kind": "document", "top_k": 8, "batch_tokens": 64}
    expected = BundleEncoder(tiny_bundle).encode(["a quick fox"], **settings)
    assert np.array_equal(opened.encode(["a quick fox"], **settings).terms, expected.terms)
