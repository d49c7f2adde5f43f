//! The table, the command line's rules, precedence, and the texts for values that can't be.
