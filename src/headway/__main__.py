"""python -m headway.cli"""

from headway.cli import main

main()
