"""Whether Hessian-vector products are right, and products by differences of gradients for where they are not."""
