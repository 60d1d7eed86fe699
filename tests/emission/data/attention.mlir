module @tapeline {
  func.func public @attention(%x: tensor<1x3x6xbf16>, %k: tensor<1x1x5x2xbf16>, %v: tensor<1x1x5x2xbf16>) -> (tensor<1x3x6xbf16>) attributes {iree.reflection = {tapeline.signature = "{\22args\22:[{\22name\22:\22x\22,\22kind\22:\22tensor\22,\22direction\22:\22IN\22,\22effective\22:\22IN\22,\22guarded\22:false},{\22name\22:\22k\22,\22kind\22:\22tensor\22,\22direction\22:\22IN\22,\22effective\22:\22IN\22,\22guarded\22:false},{\22name\22:\22v\22,\22kind\22:\22tensor\22,\22direction\22:\22IN\22,\22effective\22:\22IN\22,\22guarded\22:false}],\22results\22:[{\22name\22:\22y\22,\22direction\22:\22OUT\22}]}"}} {
    %0 = "util.global.load"() {global = @query} : () -> tensor<4x6xbf16>
    %1 = stablehlo.dot_general %x, %0, contracting_dims = [2] x [1] : (tensor<1x3x6xbf16>, tensor<4x6xbf16>) -> tensor<1x3x4xf32>
    %2 = stablehlo.convert %1 : (tensor<1x3x4xf32>) -> tensor<1x3x4xbf16>
    %3 = stablehlo.reshape %2 : (tensor<1x3x4xbf16>) -> tensor<1x3x2x2xbf16>
    %4 = stablehlo.transpose %3, dims = [0, 2, 1, 3] : (tensor<1x3x2x2xbf16>) -> tensor<1x2x3x2xbf16>
    %5 = stablehlo.iota dim = 1 : tensor<3x5xi32>
    %6 = stablehlo.iota dim = 0 : tensor<3x5xi32>
    %7 = stablehlo.compare LE, %5, %6, SIGNED : (tensor<3x5xi32>, tensor<3x5xi32>) -> tensor<3x5xi1>
    %8 = stablehlo.reshape %4 : (tensor<1x2x3x2xbf16>) -> tensor<1x1x2x3x2xbf16>
    %9 = stablehlo.dot_general %8, %k, batching_dims = [0, 1] x [0, 1], contracting_dims = [4] x [3] : (tensor<1x1x2x3x2xbf16>, tensor<1x1x5x2xbf16>) -> tensor<1x1x2x3x5xf32>
    %10 = stablehlo.constant dense<0.7071067690849304> : tensor<1x1x2x3x5xf32>
    %11 = stablehlo.multiply %9, %10 : tensor<1x1x2x3x5xf32>
    %12 = stablehlo.broadcast_in_dim %7, dims = [3, 4] : (tensor<3x5xi1>) -> tensor<1x1x2x3x5xi1>
    %13 = stablehlo.constant dense<-1.0000000150474662e+30> : tensor<1x1x2x3x5xf32>
    %14 = stablehlo.select %12, %11, %13 : tensor<1x1x2x3x5xi1>, tensor<1x1x2x3x5xf32>
    %15 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %16 = stablehlo.reduce(%14 init: %15) applies stablehlo.maximum across dimensions = [4] : (tensor<1x1x2x3x5xf32>, tensor<f32>) -> tensor<1x1x2x3xf32>
    %17 = stablehlo.reshape %16 : (tensor<1x1x2x3xf32>) -> tensor<1x1x2x3x1xf32>
    %18 = stablehlo.broadcast_in_dim %17, dims = [0, 1, 2, 3, 4] : (tensor<1x1x2x3x1xf32>) -> tensor<1x1x2x3x5xf32>
    %19 = stablehlo.subtract %14, %18 : tensor<1x1x2x3x5xf32>
    %20 = stablehlo.exponential %19 : tensor<1x1x2x3x5xf32>
    %21 = stablehlo.constant dense<0.0> : tensor<1x1x2x3x5xf32>
    %22 = stablehlo.select %12, %20, %21 : tensor<1x1x2x3x5xi1>, tensor<1x1x2x3x5xf32>
    %23 = stablehlo.constant dense<0.0> : tensor<f32>
    %24 = stablehlo.reduce(%22 init: %23) applies stablehlo.add across dimensions = [4] : (tensor<1x1x2x3x5xf32>, tensor<f32>) -> tensor<1x1x2x3xf32>
    %25 = stablehlo.reshape %24 : (tensor<1x1x2x3xf32>) -> tensor<1x1x2x3x1xf32>
    %26 = stablehlo.constant dense<1.0000000031710769e-30> : tensor<1x1x2x3x1xf32>
    %27 = stablehlo.maximum %25, %26 : tensor<1x1x2x3x1xf32>
    %28 = stablehlo.broadcast_in_dim %27, dims = [0, 1, 2, 3, 4] : (tensor<1x1x2x3x1xf32>) -> tensor<1x1x2x3x5xf32>
    %29 = stablehlo.divide %22, %28 : tensor<1x1x2x3x5xf32>
    %30 = stablehlo.convert %29 : (tensor<1x1x2x3x5xf32>) -> tensor<1x1x2x3x5xbf16>
    %31 = stablehlo.dot_general %30, %v, batching_dims = [0, 1] x [0, 1], contracting_dims = [4] x [2] : (tensor<1x1x2x3x5xbf16>, tensor<1x1x5x2xbf16>) -> tensor<1x1x2x3x2xf32>
    %32 = stablehlo.convert %31 : (tensor<1x1x2x3x2xf32>) -> tensor<1x1x2x3x2xbf16>
    %33 = stablehlo.reshape %32 : (tensor<1x1x2x3x2xbf16>) -> tensor<1x2x3x2xbf16>
    %34 = stablehlo.transpose %33, dims = [0, 2, 1, 3] : (tensor<1x2x3x2xbf16>) -> tensor<1x3x2x2xbf16>
    %35 = stablehlo.reshape %34 : (tensor<1x3x2x2xbf16>) -> tensor<1x3x4xbf16>
    %36 = "util.global.load"() {global = @output} : () -> tensor<6x4xbf16>
    %37 = stablehlo.dot_general %35, %36, contracting_dims = [2] x [1] : (tensor<1x3x4xbf16>, tensor<6x4xbf16>) -> tensor<1x3x6xf32>
    %38 = stablehlo.convert %37 : (tensor<1x3x6xf32>) -> tensor<1x3x6xbf16>
    %39 = stablehlo.convert %x : (tensor<1x3x6xbf16>) -> tensor<1x3x6xf32>
    %40 = stablehlo.convert %38 : (tensor<1x3x6xbf16>) -> tensor<1x3x6xf32>
    %41 = stablehlo.add %39, %40 : tensor<1x3x6xf32>
    %42 = stablehlo.convert %41 : (tensor<1x3x6xf32>) -> tensor<1x3x6xbf16>
    return %42 : tensor<1x3x6xbf16>
  }
  "util.global"() {sym_name = "query", sym_visibility = "private", type = tensor<4x6xbf16>, initial_value = #flow.parameter.named<"model"::"query"> : tensor<4x6xbf16>} : () -> ()
  "util.global"() {sym_name = "output", sym_visibility = "private", type = tensor<6x4xbf16>, initial_value = #flow.parameter.named<"model"::"output"> : tensor<6x4xbf16>} : () -> ()
}
