//! The life of a step, told as stories.
