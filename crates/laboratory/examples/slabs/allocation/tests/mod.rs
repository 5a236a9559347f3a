//! Compares every fast structure with a slow one that defines the result.

mod filters;
mod real;
mod run;
mod sample;
mod schemes;
mod shape;
mod stack;
mod twin;
