// Builds the Python language host, so that the plain `pulumi preview` and `pulumi up` work in a stack's folder.
// Later releases keep it in a module that cannot be required by others; this one works with engine 3.250.0.
module rackready.invalid/pulumi-language-python

go 1.25

require github.com/pulumi/pulumi/sdk/v3 v3.79.0
