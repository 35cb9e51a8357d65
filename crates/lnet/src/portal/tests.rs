//! Table tests of matching (M-6 … M-26).
