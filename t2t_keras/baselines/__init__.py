"""The systems that the paper is compared with (Table 2); nothing of the paper imports them."""
