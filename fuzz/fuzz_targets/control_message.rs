#![no_main]
//! See `causeway_fuzz::control_message`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| causeway_fuzz::control_message(data));
