"""A rank that ends before the others have met it, which wait."""

import os
import sys
import time

if os.environ["RANK"] == "1":
    sys.exit(7)
time.sleep(600)
