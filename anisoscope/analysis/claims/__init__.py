"""What the papers claim, as data: each claim with its rule, and a verdict of every experiment that
can decide it.
"""
