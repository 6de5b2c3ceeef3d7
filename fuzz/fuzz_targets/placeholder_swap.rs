#![no_main]
//! See `causeway_fuzz::placeholder_swap`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| causeway_fuzz::placeholder_swap(data));
