"""The systems with which the paper compares its model (Table 2). The code of the paper's model imports none of them."""
