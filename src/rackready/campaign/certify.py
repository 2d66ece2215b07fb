"""stub"""
def run(ctx, nodes): raise NotImplementedError
