"""Change each field of an encoder's config.json in turn, as ``draw_changed_fields``: run by hand (see ../README.md).

python -m tests.goldens.encoders.draw_changed_encoder_fields --family bert
python -m tests.goldens.encoders.draw_changed_encoder_fields --part 2 --parts 4

Results are compared as ``draw_encoders`` compares them.
"""

import sys

from tests.goldens.draw_changed_fields import change_families
from tests.goldens.encoders.cases import ENCODER_CASES
from tests.goldens.encoders.draw_encoders import compared, expected_of


def main() -> int:
    """Compare the encoders asked for; 1 where one differs, or fails without a typed error."""
    return change_families(__doc__, ENCODER_CASES, expected_of, compared)


if __name__ == "__main__":
    sys.exit(main())
