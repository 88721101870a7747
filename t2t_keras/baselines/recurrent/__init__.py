"""Recurrent models: GNMT and Deep-Att (`rnn_attention`), MoE (`moe_rnn`)."""
