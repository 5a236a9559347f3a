//! Every fast structure against a slow one that defines the answer.

mod filters;
mod run;
mod sample;
mod schemes;
mod shape;
mod stack;
mod twin;
