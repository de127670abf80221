"""The command ``push``: from a model directory to a repository of Hugging Face."""

import argparse
from functools import partial

from lsr_prod.jobs.terminal.output import say
from lsr_prod.jobs.terminal.shell import Command, CommandParser, add_store_option, location, store_options


def _add_options(parser: CommandParser) -> None:
    parser.add_argument("model", metavar="MODEL", type=location, help="folder or URI of a model directory")
    parser.add_argument("repository", metavar="OWNER/NAME", help="repository of Hugging Face; created if it is missing")
    parser.add_argument("--public", action="store_true", help="create a public repository; default: a private one")
    add_store_option(parser)


@partial(Command, "push", add_options=_add_options, output_required=False)
def push(given: argparse.Namespace) -> None:
    """Upload a model directory to a repository of Hugging Face.

        lsr-prod push MODEL OWNER/NAME [--public]

    No other command uploads anything. The token is that of ``hf auth login``, or ``HF_TOKEN``. Files of the repository
    that the model does not have are kept. Prints the repository and its commit.
    Exit codes: 0 done, 1 the upload failed, 2 bad usage, or no model directory.
    """
    from lsr_prod.errors import ConfigError, StorageError
    from lsr_prod.model import model_digest
    from lsr_prod.storage.folders import open_folder
    from lsr_prod.storage.formats.card import CARD_FILE

    # After lsr_prod.model, which names the missing extra: this library prints to stdout if it lacks a package.
    from huggingface_hub import HfApi  # isort: skip
    from huggingface_hub.errors import HFValidationError  # isort: skip

    folder = open_folder(given.model, store_options(given))
    if not (folder / CARD_FILE).is_file():
        raise ConfigError("MODEL", f"{given.model} has no {CARD_FILE}", "make a model directory with lsr-prod model")
    try:
        api = HfApi()
        api.create_repo(given.repository, private=not given.public, exist_ok=True)
        commit = api.upload_folder(
            repo_id=given.repository, folder_path=folder, commit_message=f"Upload model {model_digest(folder)}"
        )
    except HFValidationError as error:
        raise ConfigError("OWNER/NAME", " ".join(str(error).split()), "name a repository") from error
    except OSError as error:  # errors of HTTP and a missing token are of this type
        why = " ".join(str(error).split())[:300]
        raise StorageError(f"{given.repository} was not written ({type(error).__name__}: {why}); run again") from error
    say(f"{given.repository}: {commit.oid}")
