mod ftl;
mod nand;
mod zoned;
