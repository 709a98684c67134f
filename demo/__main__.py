"""`python -m demo`."""

import sys

from demo.play import main

sys.exit(main())
