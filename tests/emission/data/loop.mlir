module @tapeline {
  func.func public @loop(%x: tensor<2x3xf32>, %stop: tensor<i32>) -> (tensor<i32>, tensor<2x3xf32>) attributes {iree.reflection = {tapeline.signature = "{\22args\22:[{\22name\22:\22x\22,\22kind\22:\22tensor\22,\22direction\22:\22IN\22,\22effective\22:\22IN\22,\22guarded\22:false},{\22name\22:\22stop\22,\22kind\22:\22tensor\22,\22direction\22:\22IN\22,\22effective\22:\22IN\22,\22guarded\22:false}],\22results\22:[{\22name\22:\22count\22,\22direction\22:\22OUT\22},{\22name\22:\22y\22,\22direction\22:\22OUT\22}]}"}} {
    %0 = stablehlo.constant dense<0> : tensor<i32>
    %3 = stablehlo.constant dense<0.5> : tensor<f32>
    %4:2 = stablehlo.while(%1 = %0, %2 = %x) : tensor<i32>, tensor<2x3xf32>
    cond {
      %5 = stablehlo.compare LT, %1, %stop, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %5 : tensor<i1>
    } do {
      %6 = stablehlo.constant dense<2> : tensor<i32>
      %7 = stablehlo.compare LT, %1, %6, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %8 = "stablehlo.if"(%7) ({
        %9 = stablehlo.add %2, %x : tensor<2x3xf32>
        stablehlo.return %9 : tensor<2x3xf32>
      }, {
        %10 = stablehlo.constant dense<0.5> : tensor<2x3xf32>
        %11 = stablehlo.multiply %2, %10 : tensor<2x3xf32>
        stablehlo.return %11 : tensor<2x3xf32>
      }) : (tensor<i1>) -> (tensor<2x3xf32>)
      %12 = stablehlo.constant dense<1> : tensor<i32>
      %13 = stablehlo.add %1, %12 : tensor<i32>
      stablehlo.return %13, %8 : tensor<i32>, tensor<2x3xf32>
    }
    return %4#0, %4#1 : tensor<i32>, tensor<2x3xf32>
  }
}
