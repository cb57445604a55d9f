"""``python -m benchmarks [--quick] [--cluster] [--only REGEX] [names…]``.

Names are those of the modules without ``bench_``; all of them where no name stands. ``--quick``: small sizes and few
rounds, to see that everything works. ``--cluster``: on a LocalCluster of two processes, too.
"""

import sys

from benchmarks.run import main

if __name__ == "__main__":
    sys.exit(main())
