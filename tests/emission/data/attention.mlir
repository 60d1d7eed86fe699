module @tapeline {
  func.func public @attention(%x: tensor<1x3x6xbf16>, %k: tensor<1x1x5x2xbf16>, %v: tensor<1x1x5x2xbf16>) -> (tensor<1x3x6xbf16>) attributes {iree.reflection = {tapeline.signature = "{\22args\22:[{\22name\22:\22x\22,\22kind\22:\22tensor\22,\22direction\22:\22IN\22,\22effective\22:\22IN\22,\22guarded\22:false},{\22name\22:\22k\22,\22kind\22:\22tensor\22,\22direction\22:\22IN\22,\22effective\22:\22IN\22,\22guarded\22:false},{\22name\22:\22v\22,\22kind\22:\22tensor\22,\22direction\22:\22IN\22,\22effective\22:\22IN\22,\22guarded\22:false}],\22results\22:[{\22name\22:\22y\22,\22direction\22:\22OUT\22}]}"}} {
    %0 = stablehlo.reshape %x : (tensor<1x3x6xbf16>) -> tensor<3x6xbf16>
    %1 = "util.global.load"() {global = @query} : () -> tensor<4x6xbf16>
    %2 = func.call @linear.bf16.bf16.3x4x6(%0, %1) : (tensor<3x6xbf16>, tensor<4x6xbf16>) -> (tensor<3x4xbf16>)
    %3 = stablehlo.reshape %2 : (tensor<3x4xbf16>) -> tensor<1x3x4xbf16>
    %4 = stablehlo.reshape %3 : (tensor<1x3x4xbf16>) -> tensor<1x3x2x2xbf16>
    %5 = stablehlo.transpose %4, dims = [0, 2, 1, 3] : (tensor<1x3x2x2xbf16>) -> tensor<1x2x3x2xbf16>
    %6 = stablehlo.iota dim = 1 : tensor<3x5xi32>
    %7 = stablehlo.iota dim = 0 : tensor<3x5xi32>
    %8 = stablehlo.compare LE, %6, %7, SIGNED : (tensor<3x5xi32>, tensor<3x5xi32>) -> tensor<3x5xi1>
    %9 = stablehlo.reshape %5 : (tensor<1x2x3x2xbf16>) -> tensor<1x1x2x3x2xbf16>
    %10 = stablehlo.dot_general %9, %k, batching_dims = [0, 1] x [0, 1], contracting_dims = [4] x [3] : (tensor<1x1x2x3x2xbf16>, tensor<1x1x5x2xbf16>) -> tensor<1x1x2x3x5xf32>
    %11 = stablehlo.constant dense<0.7071067690849304> : tensor<1x1x2x3x5xf32>
    %12 = stablehlo.multiply %10, %11 : tensor<1x1x2x3x5xf32>
    %13 = stablehlo.broadcast_in_dim %8, dims = [3, 4] : (tensor<3x5xi1>) -> tensor<1x1x2x3x5xi1>
    %14 = stablehlo.constant dense<-1.0000000150474662e+30> : tensor<1x1x2x3x5xf32>
    %15 = stablehlo.select %13, %12, %14 : tensor<1x1x2x3x5xi1>, tensor<1x1x2x3x5xf32>
    %16 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %17 = stablehlo.reduce(%15 init: %16) applies stablehlo.maximum across dimensions = [4] : (tensor<1x1x2x3x5xf32>, tensor<f32>) -> tensor<1x1x2x3xf32>
    %18 = stablehlo.reshape %17 : (tensor<1x1x2x3xf32>) -> tensor<1x1x2x3x1xf32>
    %19 = stablehlo.broadcast_in_dim %18, dims = [0, 1, 2, 3, 4] : (tensor<1x1x2x3x1xf32>) -> tensor<1x1x2x3x5xf32>
    %20 = stablehlo.subtract %15, %19 : tensor<1x1x2x3x5xf32>
    %21 = stablehlo.exponential %20 : tensor<1x1x2x3x5xf32>
    %22 = stablehlo.constant dense<0.0> : tensor<1x1x2x3x5xf32>
    %23 = stablehlo.select %13, %21, %22 : tensor<1x1x2x3x5xi1>, tensor<1x1x2x3x5xf32>
    %24 = stablehlo.constant dense<0.0> : tensor<f32>
    %25 = stablehlo.reduce(%23 init: %24) applies stablehlo.add across dimensions = [4] : (tensor<1x1x2x3x5xf32>, tensor<f32>) -> tensor<1x1x2x3xf32>
    %26 = stablehlo.reshape %25 : (tensor<1x1x2x3xf32>) -> tensor<1x1x2x3x1xf32>
    %27 = stablehlo.constant dense<1.0000000031710769e-30> : tensor<1x1x2x3x1xf32>
    %28 = stablehlo.maximum %26, %27 : tensor<1x1x2x3x1xf32>
    %29 = stablehlo.broadcast_in_dim %28, dims = [0, 1, 2, 3, 4] : (tensor<1x1x2x3x1xf32>) -> tensor<1x1x2x3x5xf32>
    %30 = stablehlo.divide %23, %29 : tensor<1x1x2x3x5xf32>
    %31 = stablehlo.convert %30 : (tensor<1x1x2x3x5xf32>) -> tensor<1x1x2x3x5xbf16>
    %32 = stablehlo.dot_general %31, %v, batching_dims = [0, 1] x [0, 1], contracting_dims = [4] x [2] : (tensor<1x1x2x3x5xbf16>, tensor<1x1x5x2xbf16>) -> tensor<1x1x2x3x2xf32>
    %33 = stablehlo.convert %32 : (tensor<1x1x2x3x2xf32>) -> tensor<1x1x2x3x2xbf16>
    %34 = stablehlo.reshape %33 : (tensor<1x1x2x3x2xbf16>) -> tensor<1x2x3x2xbf16>
    %35 = stablehlo.transpose %34, dims = [0, 2, 1, 3] : (tensor<1x2x3x2xbf16>) -> tensor<1x3x2x2xbf16>
    %36 = stablehlo.reshape %35 : (tensor<1x3x2x2xbf16>) -> tensor<1x3x4xbf16>
    %37 = stablehlo.reshape %36 : (tensor<1x3x4xbf16>) -> tensor<3x4xbf16>
    %38 = "util.global.load"() {global = @output} : () -> tensor<6x4xbf16>
    %39 = func.call @linear.bf16.bf16.3x6x4(%37, %38) : (tensor<3x4xbf16>, tensor<6x4xbf16>) -> (tensor<3x6xbf16>)
    %40 = stablehlo.reshape %39 : (tensor<3x6xbf16>) -> tensor<1x3x6xbf16>
    %41 = stablehlo.convert %x : (tensor<1x3x6xbf16>) -> tensor<1x3x6xf32>
    %42 = stablehlo.convert %40 : (tensor<1x3x6xbf16>) -> tensor<1x3x6xf32>
    %43 = stablehlo.add %41, %42 : tensor<1x3x6xf32>
    %44 = stablehlo.convert %43 : (tensor<1x3x6xf32>) -> tensor<1x3x6xbf16>
    return %44 : tensor<1x3x6xbf16>
  }
  func.func private @linear.bf16.bf16.3x4x6(%a0: tensor<3x6xbf16>, %a1: tensor<4x6xbf16>) -> (tensor<3x4xbf16>) attributes {tapeline.helper = "{\22kind\22:\22linear\22}"} {
    %0 = stablehlo.dot_general %a0, %a1, contracting_dims = [1] x [1] : (tensor<3x6xbf16>, tensor<4x6xbf16>) -> tensor<3x4xf32>
    %1 = stablehlo.convert %0 : (tensor<3x4xf32>) -> tensor<3x4xbf16>
    return %1 : tensor<3x4xbf16>
  }
  func.func private @linear.bf16.bf16.3x6x4(%a0: tensor<3x4xbf16>, %a1: tensor<6x4xbf16>) -> (tensor<3x6xbf16>) attributes {tapeline.helper = "{\22kind\22:\22linear\22}"} {
    %0 = stablehlo.dot_general %a0, %a1, contracting_dims = [1] x [1] : (tensor<3x4xbf16>, tensor<6x4xbf16>) -> tensor<3x6xf32>
    %1 = stablehlo.convert %0 : (tensor<3x6xf32>) -> tensor<3x6xbf16>
    return %1 : tensor<3x6xbf16>
  }
  "util.global"() {sym_name = "query", sym_visibility = "private", type = tensor<4x6xbf16>, initial_value = #flow.parameter.named<"model"::"query"> : tensor<4x6xbf16>} : () -> ()
  "util.global"() {sym_name = "output", sym_visibility = "private", type = tensor<6x4xbf16>, initial_value = #flow.parameter.named<"model"::"output"> : tensor<6x4xbf16>} : () -> ()
}
