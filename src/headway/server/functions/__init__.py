"""`headway serve module:function`: HTTP for a function of a list, batched."""
