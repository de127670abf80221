import json
from dataclasses import asdict

from lsr_prod.encoding.encoder import EncoderFactory
from tests.encoding.poison_encoder import FirstTimeEncoder, open_first_time


def test_factory_survives_json_and_opens_the_encoder_with_its_arguments():
    named = EncoderFactory(f"{open_first_time.__module__}:{open_first_time.__name__}", {"memory": "folder/file"})
    factory = EncoderFactory(**json.loads(json.dumps(asdict(named))))
    assert factory == named
    assert isinstance(factory.open(), FirstTimeEncoder)
